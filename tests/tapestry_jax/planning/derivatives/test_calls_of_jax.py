"""Calls that only wrap a program are known by the names that this jax gives them, wherever programs are read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.kernels import elementwise, jaxprs
from laws.verdicts import noise, wide
from tapestry_jax.planning.derivatives import dependence
from tapestry_jax.shards.numeric import simulated

LOOPS = {"scan", "while", "cond"}
RULES = {"custom_jvp_call", "custom_vjp_call"}


@jax.custom_vjp
def of_two(x, y):
    return jnp.sin(x), jnp.sin(y)


of_two.defvjp(lambda x, y: (of_two(x, y), None), lambda _, cotangents: cotangents)
relu_of_two = jax.custom_jvp(lambda x, y: (jax.nn.relu(x), y + 1))
relu_of_two.defjvps(None, None)
two_turns = jax.checkpoint(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)[0])

WRAPPED = {
    "jit": jax.jit(lambda x, y: (jnp.sin(x), jnp.sin(y))),
    "checkpoint": jax.checkpoint(lambda x, y: (jnp.sin(x), jnp.sin(y))),
    "custom_vjp": of_two,
    "custom_jvp": relu_of_two,
    "a checkpoint that was differentiated": jax.linearize(
        jax.checkpoint(lambda x, y: (jnp.sin(x), jnp.sin(y))), 1.0, 1.0
    )[1],
}


@pytest.mark.parametrize("function", WRAPPED.values(), ids=WRAPPED)
def test_dependence_is_followed_into_calls(function):
    number = jax.ShapeDtypeStruct((), jnp.float32)
    found = dependence.dependence(lambda x, y: list(function(x[0], y[0])), [number], [number])
    assert found == ((True, False), (False, True))


def calls(jaxpr):
    """The names of all primitives that hold a program."""
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            if hasattr(value, "eqns"):
                yield equation.primitive.name
                yield from calls(getattr(value, "jaxpr", value))


def test_the_names_of_calls_are_known():
    def gradient(x):
        return jax.vjp(two_turns, x)[1](x)

    traced = [jax.make_jaxpr(function)(1.0, 1.0) for function in WRAPPED.values()]
    names = {name for each in (*traced, jax.make_jaxpr(gradient)(1.0)) for name in calls(each.jaxpr)} - LOOPS
    assert len(names) >= 5
    for known in (elementwise.CALLS, dependence._CALLS, wide._CALLS, simulated.CALLS):
        assert names <= known
    assert names - {name for name in names if "remat" in name or name == "checkpoint"} - RULES <= set(jaxprs.WRAPPERS)


def test_rounding_is_followed_into_checkpoints():
    def steps(x):
        return jnp.sin(jnp.exp(x) * 100) * 1e3

    x = np.linspace(1.0, 2.0, 5)
    plain, kept = (
        noise.Noise(each, (x,), {}, "key", moved=2.0**-24).spread() for each in (steps, jax.checkpoint(steps))
    )
    np.testing.assert_array_equal(kept, plain)
