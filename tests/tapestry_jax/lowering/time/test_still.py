"""What is the same in every turn of a loop is computed before it, and nothing else is moved."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tapestry_jax.lowering.time.still import before_loop

FIXED = {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.float32(3)}


def _names(function, *arguments):
    return [equation.primitive.name for equation in jax.make_jaxpr(function)(*arguments).jaxpr.eqns]


def _turn(fixed, moving, counter):
    scaled = jnp.exp(-fixed["a"]) * 2
    return scaled @ moving + counter, scaled.sum()


def test_arithmetic_on_what_stands_still_is_moved_and_gives_the_same():
    moving, counter = jnp.ones((3, 4)), jnp.int32(2)
    still, after = before_loop(_turn, FIXED, moving, counter)
    for got, wanted in zip(after(still, moving, counter), _turn(FIXED, moving, counter), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert {"exp", "neg"} & set(_names(_turn, FIXED, moving, counter))
    assert not {"exp", "neg", "mul"} & set(_names(after, still, moving, counter))


def test_gradients_pass_through_what_was_moved():
    def loss(fixed, moved):
        still, turn = before_loop(_turn, fixed, jnp.ones((3, 4)), jnp.int32(0)) if moved else (fixed, _turn)
        return jnp.sin(turn(still, jnp.ones((3, 4)), jnp.int32(1))[0]).sum()

    got, wanted = (jax.grad(loss)(FIXED, moved) for moved in (True, False))
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-6), got, wanted)


def test_what_would_grow_or_takes_part_in_the_turn_stays():
    def grows(fixed, moving):
        return fixed["b"] + jnp.zeros((2, 3)), fixed["a"] * moving

    still, after = before_loop(grows, FIXED, jnp.ones((2, 3)))
    assert still is FIXED and after is grows


def test_a_ring_scales_its_queries_once():
    @tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
    def attention(q, k, v):
        return tp.attention(q, k, v)

    # No other array of a turn has this shape.
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 12, 5), (2, 8, 5), (2, 8, 3))]
    plan = tp.plan(tp.trace(attention, *shapes), tp.mesh(data=4), {"queries": "data", "keys": tp.ring("data")})
    assert [*_scaled(jax.make_jaxpr(plan.compile())(*shapes).jaxpr, False)] == [False]


def _scaled(jaxpr, looped):
    """For each product with a number of an array like the queries: whether it stands in a loop."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "mul" and equation.outvars[0].aval.shape == (2, 3, 5):
            yield looped
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _scaled(inner, looped or equation.primitive.name == "scan")
