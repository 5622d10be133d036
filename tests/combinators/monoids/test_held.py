"""Monoids that know whether a state is of anything: what they say of themselves, and how little others pay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators import monoids
from combinators.merging.monoid import Monoid
from combinators.monoids.held import held, hold, release
from tests.combinators.monoids.test_identities_and_merges import INEXACT, NAMES, STATES

INF = np.inf


def multiply(first, then):
    """Of numbers with a first derivative: a monoid of somebody else, with a zero in its identity."""
    return first[0] * then[0], first[0] * then[1] + first[1] * then[0]


JETS = Monoid((1, 0), multiply, commutative=True, name="jets")


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_is_carried_by_those_whose_identity_is_inexact(name):
    monoid = getattr(monoids, name)
    assert (held(monoid) is monoid) == (name not in INEXACT)
    assert (held(monoids.function(monoid)) == monoids.function(monoid)) == (name not in INEXACT)
    assert (held(monoids.segmented(monoid)) == monoids.segmented(monoid)) == (name not in INEXACT)


def test_of_a_product_each_part_goes_its_own_way():
    both = held(monoids.Sum & monoids.MatrixProduct)
    assert [part.name for part in both.parts] == ["Sum", "held MatrixProduct"]
    state = jnp.ones(()), jnp.full((2, 2), 3.0)
    kept = hold(both, state, True)
    assert jax.tree.structure(kept) == jax.tree.structure((0, (0, 0)))
    assert release(both, kept) == state


def test_what_is_held_is_held_again():
    once = held(JETS)
    assert once.commutative and not once.idempotent
    state = hold(once, (jnp.ones(()), jnp.ones(())), True)
    assert release(held(once), hold(held(once), state, True)) == state


@pytest.mark.parametrize("name", sorted(INEXACT))
def test_nothing_is_merged_with_nothing(name):
    monoid = getattr(monoids, name)
    whole, state = held(monoid), jax.tree.map(lambda leaf: np.full_like(leaf, INF), STATES[name][0])
    nothing = whole.identity_for(hold(whole, state, True))
    some = hold(whole, state, True)
    for left, right, there in ((nothing, some, True), (some, nothing, True), (nothing, nothing, False)):
        flag, merged = whole.merge(left, right)
        assert bool(flag) == there
        jax.tree.map(np.testing.assert_array_equal, merged, state if there else nothing[1])


def test_an_optional_state_beside_nothing_has_the_slope_of_itself():
    product = monoids.optional(jnp.matmul)
    nothing = jnp.zeros((), bool), jnp.zeros((2, 2))

    def total(x):
        return jnp.sum(product.merge(nothing, product.merge((jnp.ones((), bool), x), nothing))[1])

    np.testing.assert_array_equal(jax.grad(total)(jnp.full((2, 2), INF)), np.ones((2, 2)))


def test_a_run_of_nothing_on_the_right_keeps_an_infinity():
    runs = monoids.runs(monoids.MatrixProduct)
    state = jnp.int8(1), jnp.int32(3), jnp.full((2, 2), INF)
    for merged in (runs.merge(state, runs.identity_for(state)), runs.merge(runs.identity_for(state), state)):
        jax.tree.map(np.testing.assert_array_equal, merged, state)
