"""The rooms hold: each import contract refuses the import it is there to refuse."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.house import rooms

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("combinators", "laws", "tapestry_jax")


def imported(source: str) -> set[str]:
    """Every dotted name that a module imports or reads off an imported package, relative imports aside."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    return subprocess.run([sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and their configuration, in a place where a wrong import may be planted."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_contracts_hold(copy: Path):
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


# A file of a room, what it imports, and the contract that refuses it.
REFUSED = (
    ("combinators/planted.py", "import tapestry_jax.planning", "combinators knows no plan"),
    ("combinators/planted_flax.py", "from flax import nnx", "combinators knows no plan"),
    ("tapestry_jax/planted.py", "import laws", "tapestry_jax does not import laws"),
    ("tapestry_jax/planning/planted.py", "import tapestry_jax.lowering", "planning imports neither lowering"),
    ("tapestry_jax/planning/planted_arrays.py", "import numpy as np", "planning touches no arrays"),
    ("tapestry_jax/lowering/planted.py", "from flax import nnx", "only tapestry_jax.nnx imports flax"),
    (
        "tapestry_jax/lowering/planted_nnx.py",
        "import tapestry_jax.nnx",
        "only the face and `tapestry train` load tapestry_jax.nnx",
    ),
)


def test_contracts_refuse(copy: Path):
    # One run looks for all of them: what a contract says is read in its own section.
    for module, statement, _ in REFUSED:
        (copy / module).write_text(statement + "\n")
    done = lint_imports(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    sections = re.split(r"^(.+)\n-+\n", done.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    said = dict(zip(sections[1::2], sections[2::2], strict=True))
    for module, _, contract in REFUSED:
        arrow = f"{module.removesuffix('.py').replace('/', '.')} -> "
        assert any(title.startswith(contract) and arrow in text for title, text in said.items()), (module, said)


def contracts_of_rooms() -> dict[str, dict[str, Any]]:
    """The `layers` contracts, by the folder whose rooms they order."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return {folder: each for each in tables if each["type"] == "layers" for folder in each["containers"]}


def test_every_folder_of_rooms_has_a_contract_for_all_that_is_in_it():
    contracts = contracts_of_rooms()
    assert sorted(contracts) == rooms.floors()
    assert [folder for folder, contract in contracts.items() if contract.get("exhaustive") is not True] == []


def test_contracts_of_rooms_refuse_arrows_that_run_back_up(copy: Path):
    # One run looks for all of them. Nobody imports what is planted in a room, so that it breaks one contract alone.
    contracts = contracts_of_rooms()
    for folder, contract in contracts.items():
        top, *below = ([f"{folder}.{name}" for name in layer.split(" : ")] for layer in contract["layers"])
        from_below = [name for layer in reversed(below) for name in layer]
        low = next(filter(rooms.is_room, from_below), from_below[0])
        inside = copy / low.replace(".", "/")
        file = inside / "planted.py" if inside.is_dir() else inside.with_suffix(".py")
        with file.open("a") as opened:
            opened.write(f"\n\ndef late():\n    import {top[0]}\n")
    done = lint_imports(copy)
    broken = [line for line in done.stdout.splitlines() if line.endswith(" BROKEN")]
    assert [each["name"] for each in contracts.values() if f"{each['name']} BROKEN" not in broken] == []


@pytest.mark.parametrize("path", sorted((ROOT / "tapestry_jax" / "planning").rglob("*.py")), ids=lambda path: path.stem)
def test_planning_uses_no_jax_numpy(path: Path):
    assert "jax.numpy" not in imported(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted((ROOT / "combinators").rglob("*.py")), ids=lambda path: path.stem)
def test_combinators_needs_jax_and_numpy_only(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    roots = {module.partition(".")[0] for module in modules}
    assert roots - sys.stdlib_module_names <= {"combinators", "jax", "numpy"}


JSON_ELSEWHERE = {
    "combinators/stored/json.py": 2,  # `read_json`; single strings of a text that it has parsed
    "tapestry_jax/fabric/tensors/records.py": 1,  # holds plans as texts, longer than a text of a file
    "tapestry_jax/nnx/training/saving/resuming.py": 1,  # what it has just written
    "tapestry_jax/searching/question/kept.py": 2,  # what it has just written; holds a plan as a text
    "tapestry_jax/storage/chunked/metadata.py": 1,  # a format of others, with bounds of its own
    "tapestry_jax/storage/files/safetensors.py": 2,  # a format of others, with bounds of its own
}


def test_json_of_any_origin_is_read_within_bounds():
    texts = {path: path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    found = {
        path.relative_to(ROOT).as_posix(): len(re.findall(r"json\.loads?\(", text)) for path, text in texts.items()
    }
    # Elsewhere `combinators.stored.json.read_json` reads: bounds, no key twice, no infinity, and errors in our words.
    assert {path: count for path, count in found.items() if count} == JSON_ELSEWHERE


@pytest.mark.parametrize(
    "source",
    [
        "import jax.numpy as jnp",
        "from jax import numpy",
        "from jax.numpy import sum",
        "import jax\nx = jax.numpy.zeros(3)",
    ],
)
def test_imported_sees_every_spelling(source: str):
    assert "jax.numpy" in imported(source)


@pytest.mark.parametrize("package", PACKAGES)
def test_package_ships_its_types(package: str):
    assert (ROOT / package / "py.typed").is_file()
