"""Loops that cannot be: refused, with the remedy."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp

MESH = tp.mesh(None, data=2, model=4)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
PRODUCT = tp.program("i k, k n -> i n")(lambda a, b: matmul(a, b))
TYPES = tp.TensorType({"i": 8, "k": 16}), tp.TensorType({"k": 16, "n": 8})
ROWS = (tp.TensorType({"i": 8, "t": 16}),)


def last(a: Any) -> Any:
    return a[:, -1]


ORDERED = tp.Monoid(0.0, lambda a, b: 0.5 * a + b)


@tp.program("i t -> i")
def decayed(x: Any) -> Any:
    return tp.Reduce(last, "i t -> i", ORDERED)(x)


@pytest.mark.parametrize(
    ("program", "types", "entries", "text"),
    [
        (
            PRODUCT,
            TYPES,
            {"i": tp.chunks(9)},
            "the plan takes `i` of `matmul` in 9 chunks, more than it has cells\n"
            "  a device has 8 cells of it\n"
            "  Take at most 8 chunks, or write tp.chunks(size=...).",
        ),
        (
            PRODUCT,
            TYPES,
            {"k": tp.ring("data")},
            "the plan lets `k` go round the mesh axis `data`, on which nothing else is placed\n"
            "  no operation would meet more than its own piece\n"
            '  Place another dimension of the operation there, as in {"queries": "data", "k": tp.ring("data")}, '
            'or write "data" alone.',
        ),
        (
            PRODUCT,
            TYPES,
            {"i": "data", "k": tp.ring("data"), "n": tp.ring("data")},
            "two dimensions of `matmul` go round the mesh axis `data`\n"
            "  `k`, `n`\n"
            "  Let one of them go round, and place the other on the axis or in chunks.",
        ),
        (
            PRODUCT,
            TYPES,
            {"k": "data", "n": tp.ring("data")},
            "`n` of `matmul` goes round the mesh axis `data`, over which `k` is folded\n"
            "  signature i k, k n -> i n\n"
            "  devices would add up results of different pieces\n"
            "  Place a dimension that the result carries on `data`, or take `n` in chunks.",
        ),
        (
            decayed,
            ROWS,
            {"i": "data", "t": tp.ring("data")},
            "`t` of `last` goes round a ring, which keeps no order\n"
            "  signature i t -> i\n"
            "  each device begins with another piece, and the monoid is not commutative\n"
            '  Place it on the mesh axis itself: {"t": "data"}.',
        ),
        (
            PRODUCT,
            TYPES,
            {"i": (tp.chunks(2), "data")},
            "the plan places `i` in an order that has no meaning\n"
            "  got (chunks(2), data)\n"
            "  Write mesh axes first, then at most one ring, one tp.chunks and one tp.halo, as in "
            '("data", tp.chunks(4)).',
        ),
    ],
    ids=["chunks", "ring alone", "two rings", "ring and fold", "order", "order of items"],
)
def test_refused(program: Any, types: Any, entries: dict[str, Any], text: str) -> None:
    with pytest.raises(tp.PlanError) as caught:
        tp.plan(tp.trace(program, *types), MESH, entries)
    assert str(caught.value) == text


def test_arrays_are_not_stored_in_chunks() -> None:
    with pytest.raises(tp.PlanError) as caught:
        tp.plan(tp.trace(PRODUCT, *TYPES), MESH, {"i": "data"}, inputs={"a": {"i": tp.chunks(2)}})
    assert str(caught.value) == (
        "inputs['a'] stores `i` in chunks(2)\n"
        "  arrays lie on mesh axes; loops and exchanges belong to operations\n"
        "  Name mesh axes here, and write the rest into the plan's entries."
    )


@pytest.mark.parametrize("wrong", [lambda: tp.chunks(), lambda: tp.chunks(0), lambda: tp.chunks(2, size=3)])
def test_chunks_take_one_number(wrong: Any) -> None:
    with pytest.raises(tp.PlanError, match=r"tp\.chunks takes a number of chunks, or the size of one"):
        wrong()


def test_plans_with_loops_are_stored() -> None:
    graph = tp.trace(PRODUCT, *TYPES)
    entries = {"i": ("data", tp.chunks(2)), "k": (tp.ring("data"), tp.chunks(size=2)), "n": "model"}
    plan = tp.plan(graph, MESH, entries)
    again = tp.Plan.from_json(plan.to_json(), graph)
    assert again.entries == plan.entries and again.schedule == plan.schedule
