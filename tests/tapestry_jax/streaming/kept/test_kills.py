"""SIGKILL at random moments, in real processes: every job ends with the bits of one that nobody kills.

A hundred kills, of processes, workers and ranks; two hundred of all jobs and sizes where all is thorough.
"""

from __future__ import annotations

import json

from tests.forked import run
from tests.thoroughly import thoroughly

CODE = "import sys; from tests.tapestry_jax.streaming.kept.kills import main; sys.exit(main(sys.argv[1:]))"


def test_killed_jobs_end_with_the_same_bits():
    words = ["--kills", 200] if thoroughly() else ["--kills", 100, "--few"]
    done = run(CODE, *words, "--seconds", 120, env={"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    # Fifty are what a loaded machine does in two minutes.
    assert told["wrong"] == [] and told["kills"] >= 50
    assert told["drivers"] and told["ranks"] and told["workers"] + told["their drivers"], told
