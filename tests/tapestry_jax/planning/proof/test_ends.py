"""The ends of folds and scans are held to the steps in their loops: what a `Finish` names is what these have cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.proof.prove import prove
from tapestry_jax.planning.scheduling.schedule import Schedule
from tests.pairs.damaging import at, ends_of, with_end, with_end_damaged
from tests.pairs.pair import difference
from tests.simulated.evaluate import simulated

aggregators, chunks = tp.aggregators, tp.chunks
running = tp.scan(aggregators.Sum(), "t c -> t c", over="t")
half = tp.Map(lambda x: 0.5 * x)
less = tp.Map(lambda x, total: x - total, "t c, c -> t c")


def pair(a: Any, b: Any) -> Any:
    return a, b


def second(state: Any) -> Any:
    return state[1]


def scan(**options: Any) -> Any:
    return lambda x: tp.Scan(tp.monoids.Sum, "t c -> t c", over="t", **options)(x)


def affine(a: Any, x: Any) -> Any:
    monoid = tp.monoids.AffineRecurrence
    return tp.Scan(monoid, "t c, t c -> t c", over="t", kernel=pair, present=second)(a, x)


def centred(x: Any) -> Any:
    return less(x, tp.fold(aggregators.Mean(), "t c -> c")(x))


ROWS = tp.TensorType({"t": 7, "c": 4})
FLAGS = tp.TensorType({"t": 7}, jnp.bool_)
LABELS = tp.TensorType({"t": 7}, jnp.int32)
PAIRS = tp.TensorType({"t": 5, "u": 6})
PROGRAMS: dict[str, tuple[Any, tuple[tp.TensorType, ...], dict[str, Any]]] = {
    "two axes": (running, (ROWS,), {"t": ("data", "model", chunks(2))}),
    "one axis": (running, (ROWS,), {"t": ("model", chunks(3))}),
    "chunks of another": (running, (ROWS,), {"t": ("data", chunks(2)), "c": chunks(2)}),
    "reverse": (scan(reverse=True), (ROWS,), {"t": ("data", chunks(2)), "c": "model"}),
    "exclusive": (scan(exclusive=True, final=True), (ROWS,), {"t": ("data", "model", chunks(2))}),
    "recurrence": (affine, (ROWS, ROWS), {"t": ("data", "model", chunks(2))}),
    "masked": (
        tp.scan(aggregators.Sum().masked(), "t c, t -> t c", over="t"),
        (ROWS, FLAGS),
        {"t": ("data", chunks(2)), "c": "model"},
    ),
    "two scans": (lambda x: running(half(running(x))), (ROWS,), {"t": ("data", "model", chunks(2))}),
    "scan in a loop": (
        lambda x: tp.iterate(lambda y: half(running(y)), 2)(x),
        (ROWS,),
        {"t": ("data", "model", chunks(2))},
    ),
    "sum": (tp.fold(aggregators.Sum(), "t c -> c"), (ROWS,), {"t": ("data", chunks(2)), "c": ("model", chunks(2))}),
    "ordered": (tp.fold(aggregators.First(), "t c -> c"), (ROWS,), {"t": ("data", "model", chunks(2))}),
    "framed": (tp.fold(aggregators.LogSumExp(), "t c -> c"), (ROWS,), {"t": ("data", "model", chunks(2))}),
    "two folds": (
        tp.fold(aggregators.CompensatedSum(), "t u -> "),
        (PAIRS,),
        {"t": ("model", chunks(2)), "u": ("data", chunks(3))},
    ),
    "by key": (
        tp.fold(aggregators.Sum().by_key(None, 3), "t c, t -> c"),
        (ROWS, LABELS),
        {"t": ("data", "model", chunks(2))},
    ),
    "fold in a loop": (
        lambda x: tp.iterate(centred, 2)(x),
        (ROWS,),
        {"t": ("data", chunks(2)), "c": "model"},
    ),
}
DAMAGES: dict[str, Callable[[Cut], Cut]] = {
    "another order": lambda cut: replace(cut, axes=cut.axes[::-1]),
    "no axes": lambda cut: replace(cut, axes=()),
    "without the first axis": lambda cut: replace(cut, axes=cut.axes[1:]),
    "without the last axis": lambda cut: replace(cut, axes=cut.axes[:-1]),
    "the first axis twice": lambda cut: replace(cut, axes=(*cut.axes[:1], *cut.axes)),
    "the last axis twice": lambda cut: replace(cut, axes=(*cut.axes, *cut.axes[-1:])),
    "a longer block": lambda cut: replace(cut, block=cut.block + 1),
    "a much longer block": lambda cut: replace(cut, block=cut.block + 2),
    "a shorter block": lambda cut: replace(cut, block=cut.block - 1),
    "stripes": lambda cut: replace(cut, striped=not cut.striped),
}


def planned(name: str, mesh: Any = None) -> tp.Plan:
    program, types, entries = PROGRAMS[name]
    return tp.plan(tp.trace(program, *types), mesh or AbstractMesh((2, 2), ("data", "model")), entries)


def is_refused(schedule: Schedule) -> bool:
    try:
        prove(schedule)
    except tp.PlanError:
        return True
    return False


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_end_that_names_other_cuts_than_its_loops_is_refused(name: str) -> None:
    schedule = planned(name).schedule
    assert not is_refused(schedule)
    drawn = [
        (what, route, cut)
        for route in ends_of(schedule)
        for what, damage in DAMAGES.items()
        if (cut := damage(at(schedule, route))) != at(schedule, route)
    ]
    assert len(drawn) >= len(DAMAGES) - 1
    assert [found for found in drawn if not is_refused(with_end(schedule, *found[1:]))] == []


def arguments(types: tuple[tp.TensorType, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.integers(0, 2 if kind.dtype == bool else 3, kind.shape), kind.dtype) for kind in types]


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_damage_to_an_end_is_refused_or_does_no_harm(name: str) -> None:
    mesh = tp.mesh(jax.devices()[:4], data=2, model=2)
    plan, rng, refused = planned(name, mesh), Random(name), 0
    args = arguments(PROGRAMS[name][1])
    expected = jax.tree.leaves(simulated(lambda *args: plan.graph(*args), *args))
    for _ in range(12):
        broken = replace(plan, schedule=with_end_damaged(plan.schedule, rng))
        if broken.schedule == plan.schedule:
            continue
        if is_refused(broken.schedule):
            refused += 1
            continue
        values = jax.tree.leaves(simulated(broken.compile(), *args))
        assert [difference(got, want, 1e-4) for got, want in zip(values, expected, strict=True)] == [None] * len(values)
    assert refused
