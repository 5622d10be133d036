"""Programs that are the same but for numbers in them, and those that are not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tapestry_jax.planning.pricing.counting.alike import has_rules, is_same
from tapestry_jax.planning.pricing.counting.resized import resized

X = jax.ShapeDtypeStruct((6, 6), jnp.float32)


def traced(function):
    return jax.make_jaxpr(function)(X, X).jaxpr


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (lambda x, y: x @ y, lambda x, y: x @ y, True),
        (lambda x, y: x / 6.0 + y, lambda x, y: x / 7.0 + y, True),
        (lambda x, y: x @ y, lambda x, y: y @ x, False),
        (lambda x, y: x @ y, lambda x, y: x @ y.T, False),
        (lambda x, y: lax.dot(x, y), lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ()))), False),
        (lambda x, y: x.sum(0), lambda x, y: x.sum(1), False),
        (lambda x, y: jnp.sin(x), lambda x, y: jnp.cos(x), False),
        (lambda x, y: (x, y), lambda x, y: (y, x), False),
        (lambda x, y: (x + y, x * y), lambda x, y: x + y, False),
        (lambda x, y: jnp.tanh(x) + x, lambda x, y: jnp.tanh(x) + y, False),
        (lambda x, y: x.astype(jnp.bfloat16), lambda x, y: x.astype(jnp.float16), False),
        (lambda x, y: lax.cumsum(x), lambda x, y: lax.cumsum(x, reverse=True), False),
        (
            lambda x, y: lax.scan(lambda c, r: (c + r, c), y[0], x),
            lambda x, y: lax.scan(lambda c, r: (c * r, c), y[0], x),
            False,
        ),
    ],
)
def test_programs_are_one_where_equations_types_and_wires_are(one, other, same):
    assert is_same(traced(one), traced(other)) is same


def test_a_program_at_other_sizes_is_the_one_that_is_traced_there():
    def at(rows, columns):
        structs = jax.ShapeDtypeStruct((rows, columns), jnp.float32), jax.ShapeDtypeStruct((columns,), jnp.float32)
        return jax.make_jaxpr(lambda x, y: jax.nn.softmax(x * y, axis=-1).mean(0))(*structs).jaxpr

    assert is_same(resized(at(13, 17), {13: 64, 17: 48}), at(64, 48))
    assert not is_same(resized(at(13, 17), {13: 64, 17: 32}), at(64, 48))


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda kept, ct: (ct[: ct.shape[0]],))


@pytest.mark.parametrize(
    ("function", "has"),
    [
        (lambda x, y: jnp.tanh(x) @ y, False),
        (lambda x, y: jax.nn.relu(x), True),
        (lambda x, y: clipped(x), True),
        (lambda x, y: lax.scan(lambda c, r: (clipped(c) + r, c), y[0], x), True),
        (lambda x, y: lax.cond(x[0, 0] > 0, clipped, jnp.sin, y), True),
    ],
)
def test_derivatives_of_its_own_are_found_inside_too(function, has):
    assert has_rules(traced(function)) is has
