"""What is predicted beyond what is compiled says that it is a bound, leaf by leaf of what folds and scans send."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.prediction import collectives
from tests.contract import assert_contract
from tests.pairs.contract import differences, verdict

X = tp.TensorType({"c": 4, "a": 3}, jnp.float32)
Sum, agg = tp.monoids.Sum, tp.aggregators


def centred_often(x):
    return tp.iterate(lambda value: value - tp.fold(agg.Mean(), "c a -> a")(value), 4)(x)


def decayed_often(x, decay):
    recurrence = tp.Scan(tp.monoids.AffineRecurrence, "c a, c a -> c a, c a", over="c")
    return tp.iterate(lambda value: recurrence(decay, value)[1], 4)(x)


def bounds(plan, path, grad=False):
    return [found.bound for found in plan.collectives(grad) if found.path == path]


def test_weights_that_no_turn_changes_are_a_bound(mesh8):
    # Four rows on eight devices: how many each has differs, but never from turn to turn.
    plan = tp.plan(tp.trace(centred_often, X), mesh8, {"c": "data"})
    assert sorted(bounds(plan, "iterate/Mean")) == [False, True]
    assert_contract(plan, bounded=True)


def test_more_that_no_bound_tells_is_found(mesh8, monkeypatch):
    plan = tp.plan(tp.trace(centred_often, X), mesh8, {"c": "data"})
    assert verdict(differences(plan, True)) == "bound"
    monkeypatch.setattr(collectives, "sends_still", lambda graph, step, leaves, turning: False)
    assert verdict(differences(plan, True)) == "more"
    # Bytes predicted, compiled, and predicted without bounds.
    assert verdict({"all-reduce over data": (24, 25, 0)}) == "less"
    assert verdict({}) == "equal"


def test_weights_are_no_bound_where_nothing_repeats(mesh8):
    plan = tp.plan(tp.trace(tp.fold(agg.Mean(), "c a -> a"), X), mesh8, {"c": "data"})
    assert bounds(plan, "Mean") == [False, False]


def test_decays_that_no_turn_changes_are_a_bound(mesh8):
    plan = tp.plan(tp.trace(decayed_often, X, X), mesh8, {"c": "data"})
    found = bounds(plan, "iterate/scan")
    assert any(found) and not all(found)


def test_what_a_block_of_one_row_does_not_tell_is_a_bound(mesh8):
    # The error of a sum of one row is zero, whatever the row is.
    x = tp.TensorType({"a": 7, "c": 7}, jnp.float32)
    plan = tp.plan(tp.trace(tp.fold(agg.CompensatedSum(), "a c -> a"), x), mesh8, {"a": tp.chunks(size=3), "c": "data"})
    assert bounds(plan, "CompensatedSum") == [False, True]
    rows = tp.TensorType({"a": 7, "c": 16}, jnp.float32)
    plan = tp.plan(tp.trace(tp.fold(agg.CompensatedSum(), "a c -> a"), rows), mesh8, {"a": tp.chunks(2), "c": "data"})
    assert bounds(plan, "CompensatedSum") == [False, False]


@pytest.mark.parametrize("chunked", [(), (tp.chunks(size=1),)])
def test_the_leaves_of_a_total_that_nobody_needs_are_not_sent(chunked):
    recurrence = tp.Scan(tp.monoids.AffineRecurrence, "c a, c a -> c a, c a", over="c")
    mesh = tp.mesh(x=2)
    first = tp.plan(tp.trace(lambda x: recurrence(x, x)[0], X), mesh, {"c": ("x", *chunked)})
    both = tp.plan(tp.trace(lambda x: recurrence(x, x), X), mesh, {"c": ("x", *chunked)})
    sent, twice = (sum(c.bytes * c.times for c in p.collectives() if "scan" in c.path) for p in (first, both))
    assert (sent, twice) == (12, 24)
