"""Pairs that XLA compiles with its default flags, in a process of its own: the suite's flags hide its fused loops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.thoroughly import thoroughly

# Without names apart, slices of both kinds meet in loops of these: three chosen of those that were found so.
PROGRAM = """
import sys
from jax.interpreters import mlir
kept = dict(mlir._lowerings)
import jax
jax.config.update("jax_num_cpu_devices", 8)
from tests.pairs.compiled import CHOSEN, compare_compiled
from tests.pairs.pair import check, draw_pair

def verdicts():
    jax.clear_caches()
    pairs = [draw_pair(f"n/{number}", 2, **CHOSEN)[plan] for number, plan in eval(sys.argv[1])]
    return [check(program, placing, by=compare_compiled)[1].verdict for program, placing in pairs]

print(verdicts())
mlir._lowerings.update(kept)
print(verdicts())
"""


def test_names_do_not_meet_under_the_default_flags_and_are_found_where_they_do() -> None:
    told = {"XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in told}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    pairs = [(23, 1), (25, 1), (26, 0)] if thoroughly() else [(23, 1)]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(pairs)], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [str(["equal"] * len(pairs)), str(["names"] * len(pairs))]
