"""A part of the suite as users run it: XLA optimises and fuses by its default flags, which other tests turn down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.thoroughly import thoroughly

ROOT = Path(__file__).resolve().parents[2]
# Hashes and shifts, of which the thorough tests run all; windows whose chunks read from neighbours. The whole suite
# takes some forty minutes so.
PARTS = ("tests/combinators/aggregators/test_sketches.py", "tests/tapestry_jax/lowering/time/test_windows_in_chunks.py")


def test_sketches_and_windows_hold_under_the_default_flags() -> None:
    # A flag that is there and empty is left alone by tests/conftest.py; options of this run are not those of the other.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TAPESTRY"))}
    few = () if thoroughly() else ("-k", "not minhash and not reservoir and not ddsketch and not count_min")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *few, *PARTS]
    ran = subprocess.run(command, cwd=ROOT, env={**kept, "XLA_FLAGS": ""}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout
