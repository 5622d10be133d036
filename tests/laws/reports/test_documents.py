"""What documents print of the laws is what the laws print; the example package proves its pieces."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

import laws
import tapestry_jax as tp
from tests.quickly import PROCESS
from tests.thoroughly import thoroughly

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "examples" / "lawful_package"


def test_readme_shows_what_a_failing_law_prints():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = next(block for block in re.findall(r"```text\n(.*?)\n```", text, re.DOTALL) if block.startswith("LAW "))
    norm = tp.Reduce(lambda x: jnp.sqrt((x**2).sum(0)), "row col -> col", tp.monoids.Sum, name="norm")
    with pytest.raises(laws.LawError) as caught:
        laws.assert_lawful(norm, types=[tp.TensorType({"row": 4, "col": 2})])
    assert str(caught.value) == shown


# A test a law, in a process of its own, is in tests/laws/test_check.py.
@pytest.mark.thorough
def test_package_of_somebody_else_proves_its_pieces():
    """By its own tests, as a user would run them; more of them, and on two workers, in thorough tests."""
    some = "semantic or chunks or split"
    if thoroughly():
        some += " or associativity or identity_gradient or footprint"
    workers = "2" if thoroughly() else "0"
    words = ["-k", some, "-q", "-rA", "-n", workers, "-p", "no:randomly", "-p", "no:cacheprovider", "--rootdir=."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=PACKAGE,
        env={**PROCESS, "XLA_FLAGS": os.environ["XLA_FLAGS"], "PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"PASSED tests/test_laws.py::test_resultant\[ResultantLength-semantic\]", done.stdout)
    assert re.search(r"PASSED tests/test_laws.py::test_blur\[blur-split\]", done.stdout)
