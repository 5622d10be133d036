"""What the proof does not refuse of random damage does no harm: it is run, and gives what the program gives."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import jax
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.proof.prove import prove
from tests.pairs.damaging import damaged
from tests.pairs.pair import difference, draw_pair
from tests.pairs.plans import repaired
from tests.simulated.evaluate import simulated

DAMAGES = 12


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_refused_or_does_no_harm(seed: int) -> None:
    ((program, placing),) = draw_pair(f"damage {seed}", 1)
    _, plan, _ = repaired(placing, program.graph, f"damage {seed}")
    assert plan is not None
    args, rng, refused = program.args(), Random(seed), 0
    expected = simulated(lambda args: jax.tree.leaves(program.graph(*args)), args)
    for _ in range(DAMAGES):
        schedule = damaged(plan.schedule, rng)
        if schedule == plan.schedule:
            continue
        try:
            prove(schedule)
        except tp.PlanError:
            refused += 1
            continue
        run = replace(plan, schedule=schedule).compile()
        try:
            values = simulated(lambda args, run=run: jax.tree.leaves(run(*args)), args)
        except Exception:  # noqa: BLE001, what does not run does no harm
            continue
        for got, want in zip(values, expected, strict=True):
            assert got.shape != want.shape or difference(got, want, 1e-3) is None
    assert refused
