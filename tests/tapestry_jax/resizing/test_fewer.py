"""Fewer chunks where there are fewer cells; everything else is refused as by `replan`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.resizing.fewer import replan_in_fewer_chunks
from tapestry_jax.resizing.replan import replan

product = tp.einsum("batch k, k n -> batch n")


def graph_types(rows: int) -> Any:
    return tp.TensorType({"batch": rows, "k": 3}), tp.TensorType({"k": 3, "n": 4})


def graph_of(rows: int) -> Any:
    return tp.trace(product, *graph_types(rows))


@pytest.mark.parametrize(
    ("rows", "devices", "expected"), [(3, 1, 3), (1, 1, 1), (3, 2, 2), (1, 2, 1), (8, 2, 4), (16, 2, 4), (5, 1, 4)]
)
def test_there_are_as_many_chunks_as_a_device_has_cells(rows: int, devices: int, expected: int) -> None:
    mesh = tp.mesh(jax.devices()[:devices], data=devices)
    first = tp.plan(graph_of(8), mesh, {"batch": ("data", tp.chunks(4)), "n": tp.chunks(2)})
    plan = replan_in_fewer_chunks(first, graph_of(rows))
    assert str(dict(plan.entries)["batch"][-1]) == f"chunks({expected})"
    assert dict(plan.entries)["n"] == dict(first.entries)["n"]
    arrays = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3), np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(plan.compile()(*arrays), arrays[0] @ arrays[1])


def test_exceptions_of_single_operations_have_fewer_too() -> None:
    mesh = tp.mesh(jax.devices()[:1], data=1)
    graph = graph_of(8)
    path = next(node.path for node in graph.nodes if hasattr(node, "operation"))
    first = tp.plan(graph, mesh, {}, ops={path: {"batch": tp.chunks(4)}})
    ((_, ((_, (item,)),)),) = replan_in_fewer_chunks(first, graph_of(2)).ops
    assert str(item) == "chunks(2)"


def test_a_plan_by_hand_is_refused_and_so_is_another_program() -> None:
    mesh = tp.mesh(jax.devices()[:1], data=1)
    first = tp.plan(graph_of(8), mesh, {"batch": tp.chunks(4)})
    for refused in (
        lambda: replan(first, graph_of(3)),
        lambda: tp.plan(graph_of(3), mesh, {"batch": tp.chunks(4)}),
        lambda: tp.planned(first, product, *graph_types(8)).plan(*map(np.ones, ((3, 3), (3, 4)))),
    ):
        with pytest.raises(tp.PlanError, match="in 4 chunks, more than it has cells"):
            refused()
    other = tp.trace(tp.Map(abs), tp.TensorType({"batch": 3}))
    with pytest.raises(tp.PlanError, match="is for another program"):
        replan_in_fewer_chunks(first, other)
