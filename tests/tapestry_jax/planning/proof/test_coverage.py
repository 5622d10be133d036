"""The proof of coverage: it holds for plans, and fails for damaged schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.proof.coverage import verify_coverage
from tapestry_jax.planning.scheduling.schedule import Repeat, Run
from tests.tapestry_jax.draw import named

MESH = AbstractMesh((2, 4), ("data", "model"))
matmul = tp.einsum("i k, k n -> i n")


@pytest.fixture
def schedule():
    @tp.program("b e, e f -> b e")
    def step(x, w):
        return matmul(x, w).rename(f="e")

    graph = tp.trace(
        lambda x, w: tp.iterate(step, 2)(matmul(x, w).rename(f="e"), w),
        *named("b e, e f", np.ones((7, 6)), np.ones((6, 6))),
    )
    return tp.plan(
        graph, MESH, {"b": ("data", "model"), "f": "model"}, ops={"einsum": {"f": None}, "iterate": {"b": "data"}}
    ).schedule


def damaged(schedule, kind, change):
    """The schedule with `change` made to the first cut of the first operation, in a loop where `kind` is Repeat."""
    steps = list(schedule.steps)
    at = next(i for i, step in enumerate(steps) if isinstance(step, kind))
    if kind is Repeat:
        steps[at] = replace(steps[at], body=damaged(steps[at].body, Run, change))
    else:
        (dim, cut), *others = steps[at].cuts
        steps[at] = replace(steps[at], cuts=((dim, change(cut)), *others))
    return replace(schedule, steps=tuple(steps))


def test_plans_cover_their_index_spaces(schedule):
    verify_coverage(schedule)


@pytest.mark.parametrize("kind", [Run, Repeat])
def test_blocks_that_are_too_short_leave_a_gap(schedule, kind):
    # The last rows belong to nobody.
    with pytest.raises(tp.PlanError) as caught:
        verify_coverage(damaged(schedule, kind, lambda cut: Cut(cut.axes[:1], 1)))
    path = "einsum" if kind is Run else "iterate/step/einsum"
    assert str(caught.value).startswith(f"the pieces of `{path}` do not cover its index space exactly\n  dimensions ")
    assert str(caught.value).endswith("Plan again: this schedule was damaged.")


def test_a_missing_box_is_named(schedule):
    with pytest.raises(tp.PlanError) as caught:
        verify_coverage(damaged(schedule, Run, lambda cut: Cut(("data",), 3)))
    # Two blocks of three rows leave the seventh.
    assert "no part holds [6:7]" in str(caught.value)


def test_a_schedule_on_a_smaller_mesh_leaves_a_gap(schedule):
    smaller = replace(schedule, mesh=type(schedule.mesh)((("data", 1), ("model", 4))))
    with pytest.raises(tp.PlanError, match="do not cover its index space exactly"):
        verify_coverage(smaller)
