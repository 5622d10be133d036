"""What is installed is all that is needed: a wheel holds the data of packages, and the licences of what is not ours."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("combinators", "laws", "tapestry_jax")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files of a wheel that is built here."""
    pytest.importorskip("hatchling", reason="needs `pip install tapestry-jax[test]`")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


def test_a_wheel_holds_every_file_of_the_packages(names: list[str]):
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*") if file.is_file())
    expected = {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}
    assert "tapestry_jax/report/page/assets/viz-global.js" in expected
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_a_wheel_holds_the_licences(names: list[str]):
    licences = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", "tapestry_jax/report/page/assets/viz-licences.txt"}
    text = (ROOT / "tapestry_jax/report/page/assets/viz-licences.txt").read_text(encoding="utf-8")
    for part in ("MIT License", "Eclipse Public License - v 1.0", "Copyright (c) 2001-2025 Expat maintainers"):
        assert part in text
    # The licences are those of the version that is here.
    library = (ROOT / "tapestry_jax/report/page/assets/viz-global.js").read_text(encoding="utf-8")
    version = library.split("Viz.js ", 1)[1].split("\n", 1)[0]
    assert f"Viz.js {version}, the package" in text.replace("\n", " ")
    assert 'graphvizVersion="16.1.0"' in library
    assert "Graphviz 16.1.0" in text
