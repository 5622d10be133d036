"""A plan whose schedule is one of another program, or for another mesh, is refused before anything is proved of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp

X = tp.TensorType({"n": 8}, jnp.bfloat16)


def planned(mesh: Any, program: Any = jnp.sin, **options: Any) -> tp.Plan:
    return tp.plan(tp.trace(tp.Map(program), X), mesh, {"n": "data"}, **options)


def test_a_schedule_of_another_program_is_refused(mesh2x4: Any) -> None:
    plan, other = planned(mesh2x4), planned(mesh2x4, jnp.cos)
    for schedule in (other.schedule, replace(plan.schedule, graph=other.graph)):
        with pytest.raises(tp.PlanError, match="one of another program"):
            replace(plan, schedule=schedule).verify()


def test_a_schedule_for_another_mesh_is_refused(mesh2x4: Any, mesh8: Any) -> None:
    plan = planned(mesh2x4)
    with pytest.raises(tp.PlanError, match="scheduled for another mesh"):
        replace(plan, mesh=mesh8).verify()


def test_an_operation_that_is_not_there_is_refused(mesh2x4: Any) -> None:
    plan = planned(mesh2x4)
    (step,) = plan.schedule.steps
    with pytest.raises(tp.PlanError, match="does not fit its program"):
        replace(plan, schedule=replace(plan.schedule, steps=(replace(step, node=-1),))).verify()  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize("options", [{"accumulate": jnp.float32}, {"platforms": ("cpu", "tpu")}])
def test_what_planning_rewrites_is_still_the_program(mesh2x4: Any, options: dict[str, Any]) -> None:
    def program(x: Any) -> Any:
        return tp.Reduce(lambda x: x.sum(), "n -> ", tp.monoids.Sum)(x)

    plan = tp.plan(tp.trace(program, X), mesh2x4, {"n": ("data", tp.chunks(2))}, **options)
    plan.verify()
    if "accumulate" in options:
        assert plan.schedule.graph != plan.graph
        with pytest.raises(tp.PlanError, match="one of another program"):
            replace(plan, accumulate=()).verify()
