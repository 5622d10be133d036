"""Dimensions without cells have no pieces: whatever a plan says of them holds, and XLA compiles what is left."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import named, normal

agg = tp.aggregators
PLACED = {
    "over the mesh": {"a": ("data", "model")},
    "striped, in chunks": {"a": (tp.striped("data"), tp.chunks(2))},
    "round a ring": {"a": tp.ring("model"), "b": "model"},
    "others go round it": {"a": "model", "b": tp.ring("model")},
    "in more chunks than cells": {"a": tp.chunks(4), "b": "data"},
}


@pytest.mark.parametrize("entries", PLACED.values(), ids=PLACED)
def test_a_program_over_nothing_runs_planned_as_unplanned(mesh2x4, entries):
    def program(x, w):
        running = tp.scan(agg.Sum(), "a b -> a b", over="a")(x)
        smooth = tp.Map(jnp.sin)(tp.einsum("a b, b c -> a c")(running, w))
        return smooth, tp.fold(agg.LogSumExp(), "a b -> b")(x), tp.fold(agg.Sum(), "a c -> c")(smooth)

    args = normal(0, 4), normal(4, 3, seed=1)
    plan = tp.plan(tp.trace(program, *named("a b, b c", *args)), mesh2x4, entries)
    plan.verify()
    assert_contract(plan)
    assert_same(plan, args)
    assert not [each for each in plan.collectives(True) if each.bytes == 0]


def test_arrays_without_cells_may_lie_anywhere(mesh2x4):
    # Other axes of such arrays are cut, gathered and moved; XLA's partitioner would fail on them.
    def program(x, y):
        return tp.einsum("b e, c b -> b e c")(x.rename(c="e"), y.rename(e="c"))

    args = normal(4, 0), normal(0, 4)
    graph = tp.trace(program, *named("b c, e b", *args))
    plan = tp.plan(graph, mesh2x4, {"b": "data"}, inputs={"y": {"b": "model"}})
    found = jax.jit(lambda x, y, ct: jax.vjp(plan.compile(), x, y)[1](ct))(*args, jnp.zeros((4, 0, 0)))
    assert [leaf.shape for leaf in found] == [(4, 0), (0, 4)]
    assert plan.collectives(True) == ()


def test_what_has_no_cells_can_be_read_where_another_axis_was_cut(mesh2x4):
    graph = tp.trace(tp.Map(jnp.sin), tp.TensorType({"a": 5, "b": 0, "c": 6}))
    run = tp.plan(graph, mesh2x4, {"c": "data"}).compile()
    assert np.asarray(run(np.zeros((5, 0, 6), np.float32))).shape == (5, 0, 6)


def test_a_fold_over_nothing_asks_for_nothing(mesh8):
    # The sum is zero whatever the other operand holds: it is neither gathered nor has it a gradient.
    weighted = tp.einsum("a c, b -> b")
    args = normal(0, 3), normal(8)
    plan = tp.plan(
        tp.trace(weighted, *named("a c, b", *args)), mesh8, {"a": "data", "c": None}, inputs={"x1": {"b": "data"}}
    )
    assert_contract(plan)
    np.testing.assert_array_equal(plan.compile()(*args), np.zeros(8))
