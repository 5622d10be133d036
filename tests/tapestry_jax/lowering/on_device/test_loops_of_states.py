"""What merges states and presents them may hold loops that start from constants, as kernels may."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests.contract import assert_same

agg = tp.aggregators
X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
KEYS = np.asarray([0, 1, 0, 2, 1, 0, 2, 1], np.int32)
PLANS: dict[str, dict[str, Any]] = {
    "rows": {"r": "data"},
    "columns": {"c": "data"},
    "both": {"r": "data", "c": "model"},
    "chunks": {"r": ("data", tp.chunks(2)), "c": "model"},
}


def in_turn(a: Any, b: Any) -> Any:
    return lax.fori_loop(0, 2, lambda turn, total: total + jnp.where(turn == 0, a, b), jnp.zeros(a.shape))


def until_done(a: Any, b: Any) -> Any:
    def turn(carry: Any) -> Any:
        return carry[0] + jnp.where(carry[1] == 0, a, b), carry[1] + 1

    return lax.while_loop(lambda carry: carry[1] < 2, turn, (jnp.zeros(a.shape), 0))[0]


def squares(total: Any) -> Any:
    return lax.scan(lambda sum_, one: (sum_ + one * one, None), 0.0, jnp.stack([total, total / 2]))[0]


def repeated(total: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, sum_: sum_ + jax.nn.relu(total), jnp.zeros(()))


@jax.custom_vjp
def doubled(a: Any) -> Any:
    return 2 * a


def doubled_in_turns(_: Any, slope: Any) -> Any:
    return (lax.fori_loop(0, 2, lambda _, sum_: sum_ + slope, jnp.zeros(slope.shape)),)


doubled.defvjp(lambda a: (2 * a, None), doubled_in_turns)


@jax.custom_jvp
def doubled_too(a: Any) -> Any:
    return 2 * a


@doubled_too.defjvp
def _(given: Any, moved: Any) -> Any:
    tangent = lax.scan(lambda sum_, _: (sum_ + moved[0], None), jnp.zeros(given[0].shape), None, length=2)[0]
    return doubled_too(*given), tangent


def of(monoid: tp.Monoid) -> tp.Aggregator:
    return tp.Aggregator(lambda x: x, monoid, lambda state: state)


SUM = tp.Monoid(0.0, in_turn, commutative=True)
AGGREGATORS: dict[str, tp.Aggregator] = {
    "merged in turn": of(SUM),
    "merged in order": of(tp.Monoid(0.0, until_done)),
    "merged beside others": of(SUM) & agg.Max(),
    "merged in segments": tp.Aggregator(lambda x: (x > 1, x), tp.monoids.segmented(SUM), lambda state: state[1]),
    "presented": agg.Sum().map(squares),
    "presented, with a rule of its own": agg.Moments().map(lambda state: repeated(state["mean"])),
    "lifted": agg.Sum().contramap(repeated),
}
# Nothing is known of what pulls back before it runs, and forwards it has no loop.
PULLED = {
    "merged": of(tp.Monoid(0.0, lambda a, b: doubled(a / 2) + b, commutative=True)),
    "merged beside others": of(tp.Monoid(0.0, lambda a, b: a + doubled_too(b / 2), commutative=True)) & agg.Max(),
    "presented": agg.Sum().map(doubled),
    "presented, pushed forwards": agg.Sum().map(doubled_too),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", AGGREGATORS)
def test_folds(mesh2x4: Any, name: str, plan: str) -> None:
    graph = tp.trace(tp.fold(AGGREGATORS[name], "r c -> c"), X)
    assert_same(tp.plan(graph, mesh2x4, PLANS[plan]), (X,), grad=name != "merged in order")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", ["merged in turn", "merged in order", "presented"])
def test_scans(mesh2x4: Any, name: str, plan: str) -> None:
    graph = tp.trace(tp.scan(AGGREGATORS[name], "r c -> r c", over="r"), X)
    assert_same(tp.plan(graph, mesh2x4, PLANS[plan]), (X,), grad=name != "merged in order")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", PULLED)
def test_written_derivatives_loop_from_constants(mesh2x4: Any, name: str, plan: str) -> None:
    assert_same(tp.plan(tp.trace(tp.fold(PULLED[name], "r c -> c"), X), mesh2x4, PLANS[plan]), (X,))
    if name != "merged beside others":
        graph = tp.trace(tp.scan(PULLED[name], "r c -> r c", over="r"), X)
        assert_same(tp.plan(graph, mesh2x4, PLANS[plan]), (X,))


@pytest.mark.parametrize("name", ["merged in turn", "presented"])
def test_by_key(mesh2x4: Any, name: str) -> None:
    graph = tp.trace(tp.fold(AGGREGATORS[name].by_key(None, 3), "r c, r -> c"), X, KEYS)
    assert_same(tp.plan(graph, mesh2x4, PLANS["both"]), (X, KEYS), grad=(0,))


@jax.custom_jvp
def added(a: Any, b: Any) -> Any:
    return a + b


added.defjvp(lambda given, moved: (added(*given), moved[0] + moved[1]))


def added_if(a: Any, b: Any) -> Any:
    return lax.cond(True, lambda: added(a, b), lambda: jnp.zeros(()))


def test_parts_of_uneven_sizes_choose_apart_from_each_other(mesh2x4: Any) -> None:
    # Which of them has labels in order is a choice of each, in one program that pulls back for all of them.
    grouped = of(tp.Monoid(0.0, added_if)).by_segment(None, 3)
    graph = tp.trace(tp.fold(grouped, "r c, r -> c"), X[:5], KEYS[:5])
    assert_same(tp.plan(graph, mesh2x4, {"r": "data"}), (X[:5], KEYS[:5]), grad=(0,))


def test_what_fails_for_another_reason_says_so(mesh2x4: Any) -> None:
    def present(state: Any) -> Any:
        if jax.sharding.get_abstract_mesh().manual_axes:
            raise TypeError("not on devices")
        return state

    graph = tp.trace(tp.fold(agg.Sum().map(present), "r c -> c"), X)
    with pytest.raises(TypeError, match="not on devices"):
        tp.plan(graph, mesh2x4, PLANS["columns"]).compile().lower()
