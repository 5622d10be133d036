"""Loops whose turns overwrite a carry without reading it, or hand one on as it is: sent, predicted, and in chunks.

What a loop starts from is sent for nothing where its first turn overwrites it; behind no turn at all it is the result.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import normal

agg = tp.aggregators
FORWARDS, BACKWARDS = tp.einsum("i j, j -> i"), tp.einsum("i j, i -> j")
ROWS, COLUMNS = tp.fold(agg.Sum(), "i j -> i"), tp.fold(agg.Sum(), "i j -> j")


def scaled(u: Any, v: Any, k: Any) -> Any:
    """Of Sinkhorn: the first carry is made of the second, whatever it was."""
    u = 1 / FORWARDS(k, v)
    return u, 1 / BACKWARDS(k, u), k


@tp.program("i j -> i, j")
def overwritten(x: Any) -> Any:
    return tp.iterate(scaled, 3)(ROWS(x), COLUMNS(x), tp.Map(jnp.exp)(x))[:2]


@tp.program("i j -> i")
def to_a_fixed_point(x: Any) -> Any:
    def over(u: Any, v: Any, k: Any) -> Any:
        return tp.fold(agg.Sum(), "i ->")(u) > 1e9

    found = tp.iterate(scaled, until=over, at_most=3, derivative="implicit", terms=2)
    return found(ROWS(x), COLUMNS(x), tp.Map(jnp.exp)(x)).state[0]


@tp.program("i j -> i j, i")
def numbers_of_fibonacci(x: Any) -> Any:
    def step(a: Any, b: Any, largest: Any) -> Any:
        return b, a + b, tp.fold(agg.Max(), "i j -> i")(a - b)

    found = tp.iterate(step, 3)(x, 2 * x, ROWS(x))
    return found[0], found[2]


@tp.program("i j -> i j")
def nobody_asks(x: Any) -> Any:
    return tp.iterate(lambda a, b, total: (b, a + b, ROWS(b)), 3)(x, 2 * x, ROWS(x))[0]


@tp.program("i j -> j")
def handed_on(x: Any) -> Any:
    def step(a: Any, k: Any) -> Any:
        return tp.Map(jnp.tanh)(BACKWARDS(k, FORWARDS(k, a))) + tp.fold(agg.Mean(), "i j -> j")(k), k

    return tp.iterate(step, 3)(COLUMNS(x), x)[0]


X = normal(6, 5, scale=0.3)


@pytest.mark.parametrize("entries", [{"j": "data"}, {"i": "model"}, {"i": "data", "j": "model"}], ids=str)
def test_what_the_first_turn_overwrites_is_not_sent(mesh2x4, entries):
    """Once the sums of the start were sent, which no plan predicted, and the carry was gathered in every turn."""
    plan = tp.plan(tp.trace(overwritten, X), mesh2x4, entries)
    inside = [each for each in plan.collectives() if each.path.startswith("iterate")]
    assert {each.kind for each in inside} == {"all-reduce"}
    assert_contract(plan)
    assert_same(plan, (X,))


def test_what_a_loop_of_no_turns_hands_on_is_sent(mesh2x4):
    plan = tp.plan(tp.trace(to_a_fixed_point, X), mesh2x4, {"i": "model"})
    assert_contract(plan, grad=False, bounded=True)
    assert_same(plan, (X,), grad=False)


@pytest.mark.parametrize("program", [numbers_of_fibonacci, nobody_asks], ids=lambda each: each.name)
@pytest.mark.parametrize("items", [tp.chunks(3), ("data", tp.chunks(3))], ids=str)
def test_carries_that_nothing_reads_go_in_chunks(mesh8, program, items):
    """Once a KeyError of `tp.plan`, or a plan that could not be proved: such a carry was whole, in no chunks."""
    x = normal(24, 5)
    plan = tp.plan(tp.trace(program, x), mesh8, {"i": items})
    assert not [each for each in plan.collectives() if each.path.startswith("iterate")]
    plan.verify()
    plan.shards().verify(plan.graph)
    assert_same(plan, (x,))


def test_what_is_made_of_a_carry_that_every_turn_hands_on_is_a_bound(mesh8):
    """XLA moves it out of the loop: 3 predicted, 1 compiled."""
    plan = tp.plan(tp.trace(handed_on, X), mesh8, {"i": "data"})
    assert all(each.bound for each in plan.collectives() if each.path == "iterate/Mean")
    assert_contract(plan, bounded=True)
