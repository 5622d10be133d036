"""The Python in README and the user documents runs as printed, and their links lead somewhere.

Of pages that compile for seconds what they name of ours is looked up, and the call held against what is taken; they run
in thorough tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.named_in_documents import misnamed
from tests.quickly import PROCESS
from tests.thoroughly import thoroughly

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS += sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# Each compiles or searches for two seconds and more, or starts workers, as streaming/cluster does in every run.
LONG = (
    *(
        "aggregators.md",
        "decode.md",
        "fabric.md",
        "jobs.md",
        "lift.md",
        "nnx.md",
        "physics.md",
        "plans.md",
        "search.md",
    ),
    *("streams.md", "train.md", "with-jax.md", "write_your_own_monoid.md"),
)

BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^```python[^\n]*\n(?:(?!^```)[^\n]*\n)*```\n[^`]*```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?:\]\(|src=\"|href=\")(?!https?:|mailto:|#)([^)\"\s#]+)")

RUNNER = """
import gc, os, sys
gc.set_threshold(100_000, 50, 100)  # as tests/conftest.py does
root, *documents = sys.argv[1:]
here = os.getcwd()
sys.path.insert(0, root)
import jax
jax.config.update("jax_num_cpu_devices", 8)
from tests.collecting import draw_without_our_numbers
from tests.quickly import quickly
quickly()
draw_without_our_numbers()
for path, source in zip(documents[::2], documents[1::2], strict=True):
    own = os.path.join(here, os.path.basename(path) + ".files")
    os.mkdir(own)
    os.chdir(own)
    exec(compile(source, path, "exec"), {"__name__": "__main__"})
    print(f"end of {path}", flush=True)
"""


def code(document: str) -> str:
    """All Python blocks of a document as one module, each on its own lines, so that tracebacks point into it."""
    lines = [""] * document.count("\n")
    for block in BLOCK.finditer(document):
        first = document.count("\n", 0, block.start(1))
        body = block.group(1).splitlines()
        lines[first : first + len(body)] = body
    return "\n".join(lines)


def run(documents: list[Path], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the blocks of each document in a namespace and an empty directory of its own, on eight devices."""
    sources = [text for path in documents for text in (str(path), code(path.read_text(encoding="utf-8")))]
    command = [sys.executable, "-W", "error", "-c", RUNNER, str(ROOT), *sources]
    environment = {**os.environ, **PROCESS}
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=900, env=environment)


def with_code() -> list[Path]:
    return [document for document in DOCUMENTS if BLOCK.search(document.read_text(encoding="utf-8"))]


def test_readme_has_code():
    assert ROOT / "README.md" in with_code()


# Starting a process takes longer than most documents. The traceback names the one that fails.
def test_readme_code_runs(tmp_path: Path):
    readme, *others = (path for path in with_code() if thoroughly() or path.name not in LONG)
    done = run([readme, *others], tmp_path)
    assert done.returncode == 0, done.stderr
    printed, _, more = done.stdout.partition(f"end of {readme}\n")
    assert readme.parent == ROOT and more.count(f"end of {ROOT}") == len(others)
    shown = [line for text in PRINTED.findall(readme.read_text(encoding="utf-8")) for line in text.splitlines()]
    assert len(shown) > 20
    assert [line for line in shown if line != "..." and line not in printed.splitlines()] == []


@pytest.mark.parametrize("document", with_code(), ids=lambda path: path.name)
def test_readme_code_names_what_is_there(document: Path):
    assert misnamed(code(document.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("document", with_code(), ids=lambda path: path.name)
def test_readme_code_says_where_the_devices_of_its_meshes_come_from(document: Path):
    # Here are eight of them; who reads the page has one.
    before, mesh, _ = code(document.read_text(encoding="utf-8")).partition("tp.mesh(")
    assert not mesh or "jax_num_cpu_devices" in before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tp.nnx.Liner(4, 4)", ["has no attribute 'Liner'"] * 2),
        ("tp.nnx.models.generate(model, prompt, 4, plans=plan)", ["unexpected keyword argument 'plans'"]),
        ("generate(model)", ["missing a required argument: 'prompt'"]),
        ("tp.nnx.models.generate(*given); model.anything(3)", []),
    ],
)
def test_readme_names_that_are_not_there_are_told(line: str, told: list[str]):
    source = f"import tapestry_jax as tp\nfrom tapestry_jax.nnx.models import generate\n{line}\n"
    found = misnamed(source)
    assert len(found) == len(told) and all(map(str.__contains__, found, told)), found
    assert all(each.startswith("3: ") for each in found)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_readme_links_exist(document: Path):
    links = LINK.findall(document.read_text(encoding="utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []


def test_readme_blocks_share_a_namespace_and_a_failure_names_the_line(tmp_path: Path):
    shared, bad = tmp_path / "two.md", tmp_path / "bad.md"
    later = "import jax\nassert jax.device_count('cpu') == n + 5\nprint('so far')"
    shared.write_text(f"```python\nn = 3\n```\ntext\n```python\n{later}\n```\n")
    bad.write_text("text\n\n```python\nassert 'n' not in globals()\nraise RuntimeError(1)\n```\n")
    done = run([shared, bad], tmp_path)
    assert done.returncode != 0 and done.stdout == f"so far\nend of {shared}\n"
    assert 'bad.md", line 5' in done.stderr and "RuntimeError: 1" in done.stderr


def test_readme_link_pattern_finds_links_and_pictures():
    text = '[a](docs/a.md) [b](https://b.org) <img src="docs/c.svg"> [d](#here) [e](docs/e.md#part)'
    assert LINK.findall(text) == ["docs/a.md", "docs/c.svg", "docs/e.md"]
