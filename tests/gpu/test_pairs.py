"""Pairs of programs and plans as `make pairs` draws them, compiled for a GPU: every mesh axis has size 1 there.

Thorough: more of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import pytest

import tapestry_jax as tp
from tests.pairs import pair
from tests.pairs.pair import TOLERANCES, difference, draw_pair

pytestmark = pytest.mark.gpu

FEW, MANY = 12, 96
PLANS = 3


@pytest.mark.parametrize(
    "number", [*range(FEW), *(pytest.param(n, marks=pytest.mark.thorough) for n in range(FEW, MANY))]
)
def test_planned_is_unplanned(number: int, gpu: jax.Device) -> None:
    with jax.enable_x64(True):
        for at, (program, placing) in enumerate(draw_pair(f"gpu/{number}", PLANS)):
            one = replace(placing, mesh=dict.fromkeys(placing.mesh, 1))
            try:
                plan = one.plan(program.graph, tp.mesh([gpu], **one.mesh))
            except tp.PlanError:
                continue
            plan.verify()
            told = f"gpu/{number}/{at}\n{program.graph.show()}\n{one}"
            _assert_equal(program, plan, told)


def _assert_equal(program: Any, plan: tp.Plan, told: str) -> None:
    args = program.args()
    values, slopes = pair.unplanned(program)  # in NumPy, from the traced program
    tolerance = TOLERANCES[str(next(iter(program.types.values())).dtype)]
    run = pair._in_true_sizes(plan.compile().jitted, [value.shape for value in values])
    found, gradients = jax.jit(pair.with_gradients(run, program.graph))(
        list(plan.put(*args)), pair.cotangents_of(values)
    )
    for number, (got, want) in enumerate(zip(found, values, strict=True)):
        assert (text := difference(got, want, tolerance)) is None, f"output {number}: {text}\n{told}"
    for name, got, want in zip(pair._smooth(program), gradients, slopes, strict=True):
        assert (text := difference(got, want, 10 * tolerance)) is None, f"gradient by {name}: {text}\n{told}"
