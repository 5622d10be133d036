"""Rings: what goes round meets other dimensions on its mesh axis, and is not mixed up with them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

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


@pytest.mark.parametrize("devices", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_what_goes_round_twice_is_sent_as_predicted(devices, mesh8):
    # Two loops rotate the same weights: between two devices XLA sends them once.
    @tp.program("a b, b c -> a c")
    def twice(x, weights):
        return product(tp.Map(jnp.tanh)(product(x, weights).rename(c="b")), weights)

    args = (normal(6, 6), normal(6, 6, seed=1))
    mesh = tp.mesh(list(mesh8.devices[:devices]), data=devices)
    plan = tp.plan(tp.trace(twice, *args), mesh, {"a": "data", "c": tp.ring("data")})
    assert_contract(plan)
    assert_same(plan, args)
