"""Kernels with loops of their own: carries that start from constants are made to vary over the mesh."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.kernels.jaxprs import scan_parts
from tests.simulated.evaluate import simulated
from tests.tapestry_jax.draw import named, normal


def scanned(x):
    """Carries of two ranks, a constant from outside the body, slices, and results by turn."""
    first = x[:, 0]

    def turn(carry, column):
        total, count = carry
        return (total + column * first, count + 1.0), total + count

    (total, _), before = lax.scan(turn, (jnp.zeros(x.shape[0]), jnp.float32(0)), x.T, reverse=True)
    return before.T + total[:, None]


def repeated(x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2 + x), (0, jnp.zeros(x.shape)))[1]


def chosen(x):
    # A condition on a whole block, by which no kernel may give other numbers.
    return lax.cond(jnp.sum(x) > 0, lambda: 0 * x, lambda: jnp.zeros(x.shape)) + x


def within(x):
    """A loop inside of a call, with a derivative of its own beside it."""
    body = jax.jit(lambda x: lax.fori_loop(0, 2, lambda _, s: s + x, jnp.zeros(x.shape)))
    return jax.nn.relu(body(x)) + jnp.searchsorted(jnp.arange(4.0), x)


@pytest.mark.parametrize("kernel", [scanned, repeated, chosen, within])
def test_a_loop_that_starts_from_constants_runs_planned_as_unplanned(mesh2x4, kernel):
    x = normal(8, 3)
    graph = tp.trace(tp.Map(kernel, "a [t] -> a [t]"), *named("a t", x))
    plan = tp.plan(graph, mesh2x4, {"a": ("model", tp.chunks(2))})
    plan.verify()
    np.testing.assert_allclose(simulated(plan.compile().jitted, x), kernel(x), rtol=1e-5)


def test_the_gradient_of_a_kernel_with_a_loop(mesh2x4):
    x, weights = normal(4, 3), normal(4, 3, seed=1)
    plan = tp.plan(tp.trace(tp.Map(scanned, "a [t] -> a [t]"), *named("a t", x)), mesh2x4, {"a": "model"})
    (found,) = simulated(lambda x: jax.vjp(plan.compile().jitted, x)[1](weights), x)
    np.testing.assert_allclose(found, jax.vjp(scanned, x)[1](weights)[0], rtol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_the_parts_of_a_scan_are_told(length):
    def run(w, start, x, y):
        return lax.scan(lambda c, s: ((c[0] + w, c[1] + s[0]), (s[0], s[1])), (start, jnp.zeros((length, 1))), (x, y))

    traced = jax.make_jaxpr(run)(1.0, 2.0, jnp.zeros(length), jnp.zeros((length, length)))
    equation = next(each for each in traced.eqns if each.primitive.name == "scan")
    constants, carries = scan_parts(equation)
    assert (constants, carries, len(equation.invars)) == (1, 2, 5)
