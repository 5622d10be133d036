"""Rings: what goes round meets other dimensions on its mesh axis, and is not mixed up with them."""

from __future__ import annotations

import jax.numpy as jnp

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import normal

product = tp.einsum("a b, b c -> a c")


@tp.program("a b, b c, c d -> a d")
def deep(x, first, second):
    return product(tp.Map(jnp.tanh)(product(x, first)), second)


def test_pieces_that_go_round_are_not_gathered_along_another_dimension(mesh8):
    # The hidden layer is cut over the ring's axis and read whole: in one turn devices hold different rows of it.
    args = (normal(16, 4), normal(4, 8, seed=1), normal(8, 8, seed=2))
    plan = tp.plan(tp.trace(deep, *args), mesh8, {"a": tp.ring("data"), "c": "data", "d": "data"}, ops=OPS)
    assert_contract(plan)
    assert_same(plan, args, reference=lambda x, first, second: jnp.tanh(x @ first) @ second)


# The second product folds `c`, which goes round with `a` in no turn.
OPS = {"einsum_1": {"c": None}}
