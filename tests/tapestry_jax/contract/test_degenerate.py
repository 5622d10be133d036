"""The contract where little is left to divide: one cell, chunks of one, maxima inside of loops."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import named, normal

recurrence = tp.Scan(tp.monoids.AffineRecurrence, "t r, t r -> t r, t r", over="t")


def test_contract_maximum_over_the_mesh_in_chunks_of_another_dimension():
    # The gradient asks who attained the maximum; the loop must not send it a second time for that.
    running = tp.Scan(tp.monoids.Max, "t r -> t r", over="t", reverse=True, final=True)
    args = (normal(3, 4),)
    graph = tp.trace(running, *named("t r", *args))
    plan = tp.plan(graph, tp.mesh(a=2, b=2, c=2), {"t": ("a", "b"), "r": (tp.striped("c"), tp.chunks(size=1))})
    assert_contract(plan)
    assert_same(plan, args)


@pytest.mark.parametrize("length", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_contract_recurrence_over_fewer_steps_than_devices(length):
    # One step is the same on all devices: it is not cut, and nothing is sent. Two steps are two pieces.
    def program(decay, x):
        return tp.Map(jnp.sin)(recurrence(tp.Map(jnp.tanh)(decay), x)[1])

    args = normal(length, 2), normal(length, 2, seed=1)
    plan = tp.plan(tp.trace(program, *named("t r, t r", *args)), tp.mesh(d=5), {"t": tp.striped("d")})
    assert_contract(plan)
    assert_same(plan, args)
    assert (plan.collectives(True) == ()) == (length == 1)


def test_a_dimension_of_one_cell_is_not_cut(mesh8):
    args = normal(1, 3), normal(3, 4, seed=1)
    graph = tp.trace(lambda x, w: tp.einsum("b k, k n -> b n")(x, w), *named("b k, k n", *args))
    plan = tp.plan(graph, mesh8, {"b": "data"})
    assert plan.collectives(True) == ()
    assert_same(plan, args)


def test_contract_two_recurrences_over_one_step():
    # On the step that is alone nothing depends on the decay, which a cut dimension would exchange all the same.
    args = [normal(1, 4, seed=seed) for seed in range(3)]
    graph = tp.trace(lambda x, y, z: recurrence(recurrence(x, z)[1], y)[1], *named("t r, t r, t r", *args))
    plan = tp.plan(graph, tp.mesh(a=2, b=3), {"t": "b", "r": tp.chunks(size=1)}, inputs={"z": {"r": "a"}})
    assert_contract(plan)
    assert_same(plan, args)


def test_what_may_run_less_often_says_so(mesh8):
    # Both scans add up the same for their gradient, which XLA then sends once.
    running = tp.Scan(tp.monoids.Sum, "t -> t", over="t")
    args = normal(16), normal(16, seed=1)
    graph = tp.trace(lambda x, y: running(x) + running(y), *named("t, t", *args))
    plan = tp.plan(graph, mesh8, {"t": "data"})
    assert not any(each.bound for each in plan.collectives())
    assert {each.backward for each in plan.collectives(True) if each.bound} == {True}
    assert "at most" in plan.explain(grad=True)
    assert_contract(plan, bounded=True)
    with pytest.raises(AssertionError, match="predicted"):
        assert_contract(plan)


def test_what_goes_round_in_every_turn_of_another_loop_says_so(mesh8):
    # The same goes round for both chunks of rows; whether it does so twice is up to JAX and XLA.
    args = normal(16, 16), normal(16, 3, seed=1)
    graph = tp.trace(tp.einsum("i k, k n -> i n"), *named("i k, k n", *args))
    plan = tp.plan(graph, mesh8, {"i": ("data", tp.chunks(2)), "k": tp.ring("data")})
    assert {each.bound for each in plan.collectives()} == {True}
    assert_contract(plan, bounded=True)


@pytest.mark.parametrize("entry", ["model", ("model", tp.chunks(2))])
@pytest.mark.parametrize("aggregator", [tp.aggregators.Sum(), tp.aggregators.LogSumExp()], ids=["sum", "logsumexp"])
def test_contract_fold_over_nothing_sends_nothing(aggregator, entry, mesh2x4):
    # The other dimension that is folded is cut, but no device holds anything to merge.
    args = (normal(0, 8, 4),)
    plan = tp.plan(tp.trace(tp.fold(aggregator, "f c b -> b"), *named("f c b", *args)), mesh2x4, {"c": entry})
    assert plan.collectives() == ()
    assert_contract(plan)
    assert_same(plan, args)
