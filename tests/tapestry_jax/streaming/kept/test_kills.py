"""SIGKILL at random moments, in real processes: every job ends with the bits of one that nobody kills.

Ten kills; two hundred where all is thorough.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.thoroughly import thoroughly

ROOT = Path(__file__).parents[4]


def test_killed_jobs_end_with_the_same_bits():
    kills = 200 if thoroughly() else 10
    words = [sys.executable, "-m", "tests.tapestry_jax.streaming.kept.kills", "--kills", str(kills), "--seconds", "120"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["wrong"] == [] and told["kills"] > 0 and told["jobs"] > 0
