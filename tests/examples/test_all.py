"""`make examples` runs all that is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.example_modules import EXAMPLES


def test_make_examples_runs_every_script() -> None:
    root = EXAMPLES.parent
    told = subprocess.run(["make", "-n", "examples"], cwd=root, capture_output=True, text=True, check=True).stdout
    scripts = [path for path in EXAMPLES.rglob("*.py") if "\nif __name__ ==" in path.read_text(encoding="utf-8")]
    assert len(scripts) > 15
    assert [shown for shown in map(_shown, scripts) if shown not in told] == []
    for other in ("train examples/train.toml", "cd examples/lawful_package"):
        assert other in told


def _shown(script: Path) -> str:
    return str(script.relative_to(EXAMPLES.parent))
