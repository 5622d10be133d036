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


def pair(a: Any, b: Any) -> Any:
    return a, b


def second(state: Any) -> Any:
    return state[1]


summed = tp.Scan(tp.monoids.Sum, "r p -> r p", over="r")
largest = tp.Scan(tp.monoids.Max, "r p -> r p", over="r", reverse=True)
recurrence = tp.Scan(tp.monoids.AffineRecurrence, "r p, r p -> r p", over="r", kernel=pair, present=second)
TABLE, LAYERS = tp.TensorType({"r": 16, "p": 8}), tp.TensorType({"layer": 2, "r": 16, "p": 8})


@tp.program("r p -> r p")
def running(x: Any) -> Any:
    return summed(x)


@tp.program("r p -> r p")
def running_maximum(x: Any) -> Any:
    return largest(x)


@tp.program("r p, r p -> r p")
def recurrent(a: Any, b: Any) -> Any:
    return recurrence(a, b)


@tp.program("r p, layer r p -> r p")
def recurrent_twice(x: Any, rates: Any) -> Any:
    return tp.stack(recurrence, 2)(x, rates)


@pytest.mark.parametrize(
    "rows", ["model", ("data", "model"), ("model", tp.chunks(2))], ids=["axis", "two axes", "chunks"]
)
@pytest.mark.parametrize("around", [tp.ring("model"), (tp.ring("model"), tp.chunks(2))], ids=["ring", "ring in chunks"])
@pytest.mark.parametrize(
    ("program", "types"),
    [(running, [TABLE]), (running_maximum, [TABLE]), (recurrent, [TABLE, TABLE]), (recurrent_twice, [TABLE, LAYERS])],
    ids=["sum", "maximum", "recurrence", "stack"],
)
def test_nothing_goes_round_the_axis_of_a_scan(
    program: Any, types: list[tp.TensorType], around: Any, rows: Any
) -> None:
    # In one turn the devices of the ring hold different pieces of `p`, whose totals do not belong together.
    graph = tp.trace(program, *types)
    with pytest.raises(tp.PlanError) as caught:
        tp.plan(graph, MESH, {"r": rows, "p": around})
    text = str(caught.value)
    assert "goes round the mesh axis `model`, over which `r` is scanned" in text
    assert "devices would go on from totals of different pieces" in text
    assert "Place a dimension that the result carries on `model`, or take `p` in chunks." in text


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


def test_rings_that_cross_are_refused():
    program = tp.program("i t -> i t")(lambda x: tp.Map(jnp.sin)(x))
    entries = {"i": ("data", tp.ring("model")), "t": ("model", tp.ring("data"))}
    with pytest.raises(tp.PlanError, match="go round each other's mesh axes"):
        tp.plan(tp.trace(program, *ROWS), MESH, entries)
