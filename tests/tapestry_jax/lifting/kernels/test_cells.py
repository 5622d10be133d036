"""Programs cell by cell: on blocks of any size, with the derivatives that their authors wrote."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lifting.kernels.cells import Cells, Instruction, Program
from tapestry_jax.lifting.kernels.primitives import primitive_of


def test_operands_come_in_any_order_of_axes_and_missing_ones_repeat() -> None:
    kernel = Cells(Program((Instruction("add", (), (0, 1)),), (2,)), ((1, 0), (0,)), (), ((0, None, 1),), 2)
    x, y = np.arange(6.0).reshape(3, 2), np.arange(2.0)
    np.testing.assert_array_equal(kernel(x, y), (x.T + y[:, None])[:, None, :])


@jax.custom_jvp
def straight(x: jax.Array) -> jax.Array:
    return jnp.round(x)


straight.defjvp(lambda primals, tangents: (straight(*primals), 3 * tangents[0]))


@jax.custom_vjp
def clipped(x: jax.Array, bound: jax.Array) -> jax.Array:
    return x * 2


clipped.defvjp(lambda x, bound: (x * 2, bound), lambda bound, g: (jnp.clip(g, -bound, bound), jnp.zeros_like(bound)))


@pytest.mark.parametrize("function", [straight, lambda x: clipped(x, jnp.full_like(x, 0.5))])
def test_a_derivative_that_its_author_wrote_is_kept_in_blocks_as_well(function) -> None:
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    graph = tp.lift(function, x, names="n")
    run = tp.plan(graph, tp.mesh(a=2), {"n": ("a", tp.chunks(2))}).compile()
    weights = np.arange(8, dtype=np.float32)
    want = jax.jit(jax.grad(lambda x: (weights * function(x)).sum()))(x)
    for f in (graph, run):
        np.testing.assert_array_equal(jax.jit(jax.grad(lambda x, f=f: (weights * f(x)).sum()))(x), want)
    assert graph.opaque() == ()


def test_second_derivatives_go_through_the_rule_again() -> None:
    x = np.float32(0.5)
    graph = tp.lift(jax.nn.relu, x)
    twice = jax.grad(jax.grad(lambda x: graph(x) ** 2))
    assert twice(x) == jax.grad(jax.grad(lambda x: jax.nn.relu(x) ** 2))(x) == 2


def test_a_primitive_that_jax_does_not_have_is_refused() -> None:
    with pytest.raises(tp.KernelError, match="JAX has no primitive `multiply_everything`"):
        primitive_of("multiply_everything")
