"""What the proof does not refuse of random damage does no harm: it is run, and gives what the program gives."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import jax
import pytest

import tapestry_jax as tp
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
    layouts = [(slot.layout, slot.type.shape) for slot in map(plan.schedule.slots.__getitem__, plan.schedule.outputs)]
    shapes = [layout.padded_shape(shape, plan.schedule.mesh) for layout, shape in layouts]
    for _ in range(DAMAGES):
        schedule = damaged(plan.schedule, rng)
        if schedule == plan.schedule:
            continue
        try:
            replace(plan, schedule=schedule).verify()
        except tp.PlanError:
            refused += 1
            continue
        run = replace(plan, schedule=schedule).compile()
        try:
            values = simulated(lambda args, run=run: jax.tree.leaves(run(*args)), args)
        except Exception:  # noqa: BLE001, what does not run does no harm
            continue
        for got, want, shape in zip(values, expected, shapes, strict=True):
            # What was asked for in padded pieces comes so, and nothing else does.
            assert got.shape == shape
            true = got[tuple(map(slice, want.shape))].astype(want.dtype)
            assert difference(true, want, 1e-3) is None
    assert refused
