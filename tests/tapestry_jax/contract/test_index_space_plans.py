"""Reversed axes, offset slices, repetitions, compositions and open axes under plans: as unplanned, and as predicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import normal

TANH = tp.Map(jnp.tanh)


def reverse(x: Any) -> Any:
    return x[::-1]


def sums_of_reversed(x: Any, w: Any) -> Any:
    return (x[::-1] * w).sum()


def pairs_backwards(x: Any, at: Any) -> Any:
    return (x[1:][::-1] - x[:-1][::-1]) * at


def spread(x: Any, at: Any, by: Any) -> Any:
    places = 2 * jnp.arange(at.shape[0])[:, None] - jnp.arange(by.shape[0])[None]
    return x[places - places.min() if places.size else places]


def holds(plan: tp.Plan, args: Any, *, reference: Callable[..., Any] | None = None) -> None:
    plan.verify()
    assert_contract(plan)
    assert_same(plan, args, reference=reference)


PLACES = {
    "mesh": {"t": "model"},
    "two axes": {"t": ("data", "model")},
    "chunks": {"t": tp.chunks(3)},
    "both": {"t": ("data", tp.chunks(2))},
    "stripes": {"t": tp.striped("model")},
}


# One axis is cut as two are, and chunks as within a device.
@pytest.mark.parametrize(
    "place",
    [pytest.param(place, marks=[pytest.mark.thorough] * (place in ("mesh", "chunks", "two axes"))) for place in PLACES],
)
def test_reversed_axes_are_cut(mesh2x4: Any, place: str) -> None:
    flip = tp.Map(reverse, "(6-t) -> t")
    x = normal(7)
    plan = tp.plan(tp.trace(TANH >> flip >> TANH, x), mesh2x4, PLACES[place])
    plan.verify()
    assert_same(plan, (x,), reference=lambda x: jnp.tanh(jnp.tanh(x)[::-1]))


def test_reversed_axes_hold_their_contract(mesh2x4: Any) -> None:
    flip = tp.Map(reverse, "(7-t) -> t")
    plan = tp.plan(tp.trace(TANH >> flip, normal(8)), mesh2x4, {"t": "model"})
    assert_contract(plan)
    assert [each.kind for each in plan.collectives()] == ["all-gather"]


@pytest.mark.parametrize(
    "entries",
    [pytest.param({"t": "model"}, marks=pytest.mark.thorough), {"t": ("model", tp.chunks(2))}],
    ids=["mesh", "chunks"],
)
def test_folds_and_windows_that_run_backwards(mesh2x4: Any, entries: Any) -> None:
    # The last device has two of its four cells: a block that is cropped keeps the last cells of what runs backwards.
    fold = tp.Reduce(sums_of_reversed, "(13-t), t -> ", tp.monoids.Sum)
    args = normal(14), normal(14, seed=1)
    holds(tp.plan(tp.trace(fold, *args), mesh2x4, entries), args, reference=lambda x, w: (x[::-1] * w).sum())
    pairs = tp.Map(pairs_backwards, "(12-t+[k]), @t -> t", sizes={"k": 2})
    plan = tp.plan(tp.trace(pairs, args[0]), mesh2x4, entries)
    assert_same(plan, args[:1], reference=lambda x: (x[1:] - x[:-1])[::-1] * jnp.arange(13))


def test_two_cut_dimensions_of_one_axis_may_run_in_opposite_directions(mesh2x4: Any) -> None:
    both = tp.Map(spread, "(2*t-u+2), @t, @u -> t u", sizes={"u": 3})
    x = normal(11)
    plan = tp.plan(tp.trace(both, x), mesh2x4, {"t": "model", "u": "data"})
    plan.verify()
    places = 2 * np.arange(5)[:, None] + 2 - np.arange(3)[None]
    assert_same(plan, (x,), reference=lambda x: x[places])


@pytest.mark.parametrize("entries", [{"t": "model"}, {"t": tp.chunks(3)}, {"t": tp.striped("model")}], ids=str)
def test_offset_slices_are_cut(mesh2x4: Any, entries: Any) -> None:
    middle = tp.Map(jnp.positive, "(t+3) -> t", sizes={"t": 8})
    x = normal(13)
    plan = tp.plan(tp.trace(TANH >> middle >> TANH, x), mesh2x4, entries)
    holds(plan, (x,), reference=lambda x: jnp.tanh(jnp.tanh(x)[3:11]))


@pytest.mark.parametrize(
    "entries",
    [
        {"r": "model", "a": "data"},
        {"r": tp.chunks(2)},
        pytest.param({"a": ("model", tp.chunks(2))}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_repetitions_are_cut(mesh2x4: Any, entries: Any) -> None:
    repeat = tp.rearrange("a b -> r b (a s)", r=6, s=2)
    x = normal(8, 3)
    plan = tp.plan(tp.trace(TANH >> repeat >> TANH, x), mesh2x4, entries)

    def reference(x: Any) -> Any:
        return jnp.tanh(jnp.tile(jnp.repeat(jnp.tanh(x).T, 2, 1), (6, 1, 1)))

    holds(plan, (x,), reference=reference)


@pytest.mark.parametrize("entries", [{"h": "model", "c": "data"}, {"h": ("data", tp.chunks(2))}], ids=str)
def test_folds_over_compositions_are_cut(mesh2x4: Any, entries: Any) -> None:
    x = normal(18, 4)
    plan = tp.plan(tp.trace(tp.fold(tp.aggregators.Sum(), "(h d) c -> c", sizes={"d": 3}), x), mesh2x4, entries)
    holds(plan, (x,), reference=lambda x: x.sum(0))


def test_axes_before_an_ellipsis_are_cut(mesh2x4: Any) -> None:
    layer = tp.einsum("a ..., a o -> o ...") >> tp.Scan(tp.monoids.Sum, "o ... -> o ...", over="o")
    args = normal(6, 3, 2), normal(6, 8, seed=1)
    plan = tp.plan(tp.trace(layer, *args), mesh2x4, {"a": "data", "o": "model"})
    holds(plan, args, reference=lambda x, w: jnp.einsum("abc,ao->obc", x, w).cumsum(0))


def test_loops_that_carry_two_values_exchange_halos(mesh2x4: Any) -> None:
    blur = tp.Map(lambda x: (x[2:] + x[1:-1] + x[:-2]) / 3, "(y+[d]-1) -> y", sizes={"d": 3}, boundary="periodic")
    loop = tp.iterate(lambda u, v, k: (u + k * blur(v), v - k * blur(u)), 4)
    args = normal(16), normal(16, seed=1), jnp.float32(0.1)
    plan = tp.plan(tp.trace(loop, *args), mesh2x4, {"y": ("model", tp.halo(depth=2))})
    holds(plan, args)


SCANS = {
    "max": (tp.scan(tp.aggregators.Max(), "b t -> b t", over="t", final=True, reverse=True), 1),
    "recurrence": (tp.Scan(tp.monoids.AffineRecurrence, "b t, b t -> b t, b t", over="t", final=True), 2),
    "mean": (tp.scan(tp.aggregators.Mean(), "b t -> b t", over="t", final=True, init=(1.0, 1)), 2),
}


# Of one leaf, and of two that begin with a state: what is sent is what two leaves that begin with none send.
@pytest.mark.parametrize(
    "scan",
    [pytest.param(scan, marks=[pytest.mark.thorough] * (scan != "recurrence")) for scan in SCANS],
)
def test_what_a_scan_ends_in_is_its_last_prefix(mesh2x4: Any, scan: str) -> None:
    arrow, leaves = SCANS[scan]
    args = [jax.nn.sigmoid(normal(3, 14, seed=seed)) for seed in range(arrow.arity or 1)]
    plan = tp.plan(tp.trace(arrow, *args), mesh2x4, {"t": ("model", tp.chunks(2))})
    holds(plan, args)
    totals = [each for each in plan.collectives() if "_total" in each.path]
    assert [(each.kind, each.bytes) for each in totals] == [("all-reduce", 12)] * leaves


@pytest.mark.parametrize("options", [{"exclusive": True}, {"exclusive": True, "init": 2.0}, {"reverse": True}], ids=str)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_ends_of_scans_are_folds(size: int, options: Any) -> None:
    scan = tp.Scan(tp.monoids.Max, "t -> t", over="t", final=True, **options)
    x = normal(size)
    expected = jnp.max(x, initial=options.get("init", -jnp.inf))
    np.testing.assert_array_equal(scan(x)[1], expected)
