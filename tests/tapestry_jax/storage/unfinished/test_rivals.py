"""Real processes that write one tensor at the same time, killed and stopped: one number in all cells, no other left.

Eight rounds; three hundred where all is thorough.
"""

from __future__ import annotations

from tests.forked import run
from tests.thoroughly import thoroughly

CODE = "import sys; from tests.tapestry_jax.storage.unfinished.rivals import main; main(*map(int, sys.argv[1:]))"


def test_rivals_leave_the_tensor_of_one_of_them():
    done = run(CODE, 300 if thoroughly() else 8, 0)
    assert (done.returncode, done.stderr) == (0, "")
