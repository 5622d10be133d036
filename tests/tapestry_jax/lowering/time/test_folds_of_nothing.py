"""Devices, chunks and turns that hold no cell of a fold: their identities are not merged, since inf * 0 is NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.merging import blocks
from tapestry_jax.lowering.exchange import ordered as exchange
from tapestry_jax.lowering.on_device import filled
from tapestry_jax.lowering.time import carried
from tapestry_jax.planning.folding import ordered
from tapestry_jax.planning.folding.ordered import fold_route
from tests.damaged import damaged
from tests.simulated.sampled import computed

INF = np.inf


def multiply(first: Any, then: Any) -> Any:
    """Of numbers with a first derivative: commutative, and with a zero in its identity."""
    return first[0] * then[0], first[0] * then[1] + first[1] * then[0]


JETS = tp.Monoid((1, 0), multiply, commutative=True, name="jets")


def jets(a: Any, b: Any) -> Any:
    return JETS.fold_stacked((a, b))


def jets_of_both(a: Any, b: Any) -> Any:
    return JETS.fold_stacked((a.reshape(-1), b.reshape(-1)))


def jets_by_query(q: Any, a: Any, b: Any) -> Any:
    return jax.vmap(lambda y: JETS.fold_stacked((a, b * y)))(q)


def numbers(*shape: int) -> tuple[Any, Any]:
    a = np.full(shape, 0.5, np.float32)
    a[0] = a[-1] = INF
    return a, np.arange(1, a.size + 1, dtype=np.float32).reshape(shape)


def matrices(count: int) -> tuple[Any]:
    """Of positive entries: nothing but the unit matrix has the zeros that make inf * 0."""
    found = np.ones((count, 2, 2), np.float32)
    found[0, 0], found[-1, :, 1] = INF, INF
    return (found,)


# What is folded, by which program.
FOLDS: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "matrices": (lambda: tp.fold(tp.aggregators.MatrixProduct(), "t [i] [j] -> "), matrices(5)),
    "cells": (lambda: tp.Reduce(jets, "t c, t c -> c", JETS), numbers(5, 8)),
    "both": (lambda: tp.Reduce(jets_of_both, "t u, t u -> ", JETS), numbers(3, 3)),
    "around": (
        lambda: tp.Reduce(jets_by_query, "q, t, t -> q", JETS),
        (np.arange(1, 9, dtype=np.float32), *numbers(5)),
    ),
    "jets": (lambda: tp.Reduce(jets, "t, t -> ", JETS), numbers(5)),
}
# The fold, the mesh, the entries, and how the states of the devices meet.
PLANS: dict[str, tuple[str, dict[str, int], dict[str, Any], str]] = {
    "gathered": ("matrices", {"data": 4}, {"t": "data"}, "gather"),
    "along a tree": ("matrices", {"data": 8}, {"t": "data"}, "tree"),
    "cell by cell": ("cells", {"data": 4}, {"t": "data"}, "cells"),
    "chunks": ("matrices", {"data": 1}, {"t": tp.chunks(4)}, ""),
    "chunks on devices": ("matrices", {"data": 3}, {"t": ("data", tp.chunks(2))}, "gather"),
    "two dimensions": ("both", {"data": 4, "model": 2}, {"t": "data", "u": "model"}, "gather"),
    "two dimensions and chunks": (
        "both", {"data": 4, "model": 2}, {"t": ("data"), "u": ("model", tp.chunks(2))}, "gather",
    ),
    "two dimensions along a tree": ("both", {"data": 4, "model": 2}, {"t": "data", "u": "model"}, "tree"),
    "round a ring": ("around", {"data": 4}, {"q": "data", "t": tp.ring("data")}, ""),
    "stripes": ("jets", {"data": 4}, {"t": (tp.striped("data"), tp.chunks(2))}, "gather"),
}  # fmt: skip


def planned(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, tuple[Any, ...]]:
    """The unplanned program, the planned one, and what they take."""
    fold, sizes, entries, route = PLANS[name]
    program, args = FOLDS[fold]
    if route in ("tree", "cells"):
        monkeypatch.setattr(ordered, "LATENCY", 0)
    plan = tp.plan(tp.trace(program(), *args), tp.mesh(**sizes), entries)
    if route:
        taken: list[str] = []

        def watched(*given: Any) -> Any:
            taken.append(fold_route(*given))
            return taken[-1]

        monkeypatch.setattr(exchange, "fold_route", watched)
        jax.eval_shape(plan.compile(), *args)
        assert {*taken} == {route}
    return program(), plan.compile(), args


def finite(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.where(np.isinf(x), 2, x).astype(x.dtype) for x in args)


def compare(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, run, args = planned(name, monkeypatch)
    wanted = np.asarray(jax.tree.leaves(program(*args))[0])
    assert np.isinf(wanted).any() and not np.isnan(wanted).any()
    # Finite numbers tell whether something is left out, which an infinity may hide.
    for given in (args, finite(args)):
        for found, leaf in zip(jax.tree.leaves(run(*given)), jax.tree.leaves(program(*given)), strict=True):
            np.testing.assert_allclose(found, leaf, rtol=1e-6)


THOROUGH_PLANS = ["two dimensions", "two dimensions along a tree", "chunks on devices"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH_PLANS)) for name in PLANS]
)
def test_what_holds_nothing_takes_no_part_beside_infinities(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(name, monkeypatch)


@pytest.mark.parametrize(
    "name", [pytest.param("along a tree", marks=pytest.mark.thorough), "chunks on devices", "round a ring"]
)
def test_what_holds_nothing_has_and_makes_no_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, run, args = planned(name, monkeypatch)

    def slopes(function: Any) -> Any:
        def total(*given: Any) -> Any:
            return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(function(*given)))

        return computed(jax.grad(total, tuple(range(len(args)))), *finite(args))

    for found, wanted in zip(slopes(run), slopes(program), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


# The plan that sees it, the function, what stands in it and what stands there instead.
FAULTS: dict[str, tuple[str, Any, str, str]] = {
    "devices of nothing are gathered": ("gathered", exchange._balanced, "filled is not None", "False"),
    "they meet cell by cell": ("cell by cell", exchange._balanced, "filled is not None", "False"),
    "they are met along a tree": ("along a tree", exchange._along_tree, "filled is not None", "False"),
    "a tree forgets what it has met": ("two dimensions along a tree", exchange._along_tree, "met | filled", "filled"),
    "a chunk of nothing is merged": ("chunks", carried.Carried.after, "self._filled(here, number)", "[True]"),
    "turns of nothing are merged": ("round a ring", carried.Carried.after, "begun & filled |", "begun |"),
    "an identity is merged": ("chunks", blocks.merge_behind, "there & some", "there"),
    "only one dimension is looked at": ("two dimensions and chunks", filled._holds, "& holds", "| False"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_identity_that_is_merged_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, function, old, new = FAULTS[fault]
    with damaged(function, old, new), pytest.raises(AssertionError):
        compare(name, monkeypatch)


def test_a_stream_in_chunks_of_nothing_is_the_fold() -> None:
    rows = matrices(5)[0]
    fold = tp.fold(tp.aggregators.MatrixProduct(), "t [i] [j] -> ")
    found = tp.stream(fold, {"t": tp.chunks(4)}, rows).run()
    np.testing.assert_array_equal(found, fold(rows))
