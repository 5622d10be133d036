"""Behind which loops gradients end is proved as well: a schedule that says so of another one is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.scheduling.schedule import Repeat

X = tp.TensorType({"a": 8}, jnp.float32)
SUM = tp.fold(tp.aggregators.Sum(), "a -> ")


def _until_small(x: Any) -> Any:
    return tp.iterate(lambda w: w / 2, until=lambda w: SUM(w * w) < 1, at_most=9)(x).state


def _compared(x: Any) -> Any:
    # What is compared with has no derivative.
    return SUM(x * tp.Map(lambda w: jnp.where(w > 0.5, 1.0, 0.0))(_until_small(x)))


def _as_often(x: Any) -> Any:
    return SUM(tp.iterate(lambda w: w / 2, 3)(x))


@pytest.mark.parametrize("program", [_compared, _as_often, lambda x: SUM(_until_small(x))])
def test_gradients_end_where_they_do(mesh2x4: Any, program: Any) -> None:
    plan = tp.plan(tp.trace(program, X), mesh2x4, {"a": "data"})
    plan.verify()
    (at,) = [at for at, step in enumerate(plan.schedule.steps) if isinstance(step, Repeat)]
    loop: Any = plan.schedule.steps[at]
    steps = [*plan.schedule.steps]
    steps[at] = replace(loop, stopped=not loop.stopped)
    damaged = replace(plan, schedule=replace(plan.schedule, steps=tuple(steps)))
    with pytest.raises(tp.PlanError, match="hands on gradients" if loop.stopped else "ends gradients"):
        damaged.verify()
