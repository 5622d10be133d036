"""Programs run in NumPy give what JAX gives, and are traced once for the shapes of their blocks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from combinators.operations.execute import run_blocks
from tapestry_jax.shards.numeric.evaluate import evaluator
from tapestry_jax.shards.numeric.kernels import Kernels
from tests.tapestry_jax.draw import normal
from tests.tapestry_jax.shards.examples import matmul


def loops(x: Any) -> Any:
    total, rows = lax.scan(lambda carry, row: (carry * 0.5 + row, carry - row), x[0] * 0, x, reverse=True)
    none = lax.scan(lambda carry, row: (carry + row, row), x[0], x[:0])
    least = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]
    return total, rows, none, least


def choices(x: Any) -> Any:
    def chosen(index: Any, row: Any) -> Any:
        return lax.switch(index, [jnp.sin, jnp.cos, jax.nn.relu], row)

    return chosen(7, x), chosen(-2, x), jax.vmap(chosen)(jnp.arange(len(x)) % 3, x)


def calls(x: Any) -> Any:
    return jax.jit(jnp.tanh)(x), jax.checkpoint(jax.nn.gelu)(x), jax.nn.softmax(x), x, 2.0


def unknown(x: Any) -> Any:
    """`top_k` and `lgamma` have no entry in the table."""
    return lax.top_k(x, 2), lax.lgamma(x * x)


def shapes(x: Any) -> Any:
    """A reshape may read another order first."""
    return jnp.reshape(x, (6, 2), order="F"), lax.reshape(x, (2, 6), (1, 0)), x[:, None].squeeze(1), jnp.ravel(x)


@pytest.mark.parametrize("function", [loops, choices, calls, shapes, unknown])
def test_a_program_in_numpy_gives_what_jax_gives(function: Any) -> None:
    x = normal(4, 3)
    found = evaluator(jax.make_jaxpr(function)(x))([np.asarray(x)])
    for got, want in zip(found, jax.tree.leaves(function(x)), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=2e-5, atol=1e-6)


def test_kernels_are_traced_once_for_blocks_of_a_shape() -> None:
    traced: list[Any] = []

    def part(shaped: Any, blocks: Any) -> Any:
        traced.append(blocks[0].shape)
        return run_blocks(shaped, blocks)

    def product(rows: int, *shape: int) -> Any:
        structs = jax.ShapeDtypeStruct((rows, 4), "float32"), jax.ShapeDtypeStruct((4, 5), "float32")
        return Kernels(matmul.operation, structs).run(part, [np.ones(shape, np.float32), np.ones((4, 5), np.float32)])

    (block,) = product(8, 2, 4)
    np.testing.assert_array_equal(block, np.full((2, 5), 4, np.float32))
    product(8, 2, 4)
    product(6, 2, 4)  # A block of a tensor of another size.
    product(8, 3, 4)
    assert traced == [(2, 4), (3, 4)]


def test_kernels_are_traced_anew_where_jax_has_doubles() -> None:
    kernels = Kernels(matmul.operation, (jax.ShapeDtypeStruct((2, 2), "float32"),) * 2)
    single = kernels.run(_doubled, [np.ones((2, 2), np.float32)])
    with jax.enable_x64(True):
        double = kernels.run(_doubled, [np.ones((2, 2), np.float32)])
    assert single[0].dtype == np.float32 and double[0].dtype == np.float64


def _doubled(_: Any, leaves: Any) -> Any:
    return [leaves[0] + jnp.arange(2, dtype=float)]
