"""Programs run in NumPy, equation by equation, give what JAX gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from combinators.equations.evaluate import evaluator
from tests.tapestry_jax.draw import normal


def loops(x: Any) -> Any:
    total, rows = lax.scan(lambda carry, row: (carry * 0.5 + row, carry - row), x[0] * 0, x, reverse=True)
    none = lax.scan(lambda carry, row: (carry + row, row), x[0], x[:0])
    least = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]
    return total, rows, none, least


def many_loops(x: Any) -> Any:
    """Each row goes on until it is large enough, in a loop for all of them; keys go round as well."""
    keys = jax.random.split(jax.random.key(0), x.shape[0])

    def turn(carry: Any) -> Any:
        row, turns, key = carry
        return row * 1.5 + 1, turns + 1, jax.random.fold_in(key, turns)

    def of_row(row: Any, key: Any) -> Any:
        row, turns, key = jax.lax.while_loop(lambda carry: jnp.abs(carry[0]).sum() < 20, turn, (row, 0, key))
        return row, turns, jax.random.key_data(key)

    return jax.vmap(of_row)(x, keys)


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


@pytest.mark.parametrize("function", [loops, many_loops, choices, calls, shapes, unknown])
def test_a_program_in_numpy_gives_what_jax_gives(function: Any) -> None:
    x = normal(4, 3)
    found = evaluator(jax.make_jaxpr(function)(x))([np.asarray(x)])
    for got, want in zip(found, jax.tree.leaves(function(x)), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=2e-5, atol=1e-6)
