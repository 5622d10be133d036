"""Programs whose slope may be infinite, against the gradients that JAX takes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

from combinators.equations.steep import is_steep, is_steep_behind_folds

STRANGE = Primitive("strange")
STRANGE.def_abstract_eval(lambda x: x)


def strange(x: Any) -> Any:
    return STRANGE.bind(x)


@jax.custom_jvp
def pushed(y: Any) -> Any:
    return jnp.maximum(y, 0.0)


pushed.defjvp(lambda primals, tangents: (pushed(*primals), tangents[0] * primals[0] * jax.lax.rsqrt(primals[0] ** 2)))
ZEROS, ONES = np.zeros(4, np.float32), np.ones(4, np.float32)
AT: dict[str, tuple[Callable[..., Any], bool, bool]] = {
    "root": (jnp.sqrt, True, False),
    "root of a fold": (lambda x: jnp.sqrt(x.max()), True, True),
    "root, then a fold": (lambda x: jnp.sqrt(x).max(), True, False),
    "power": (lambda x: x.sum() ** 0.3, True, True),
    "reciprocal power": (lambda x: x.max() ** -2, True, True),
    "square": (lambda x: x.max() ** 2, False, False),
    "quotient by a number": (lambda x: x.max() / 2, False, False),
    "quotient by a fold": (lambda x: x / x.sum(), True, True),
    "of a call": (lambda x: jax.jit(jnp.sqrt)(x.max()), True, True),
    "in a condition": (lambda x: jax.lax.cond(x.max() > 1, jnp.log, jnp.sin, x.max()), True, True),
    "in a loop": (lambda x: jax.lax.scan(lambda c, y: (jnp.sqrt(c * c + y * y), None), x[0], x)[0], True, True),
    "of slices": (lambda x: jnp.sqrt(x[:2] ** 2 + x[2:] ** 2), True, True),
    "angle of sums": (lambda x: jnp.arctan2(x[:2].sum(), x[2:].sum()), True, True),
    "incomplete gamma": (lambda x: jax.scipy.special.gammainc(0.5, x.max()), True, True),
    "of a tangent of its own": (lambda x: pushed(x.max()), True, True),
    "of a rule of JAX": (lambda x: jax.nn.relu(x.max()), False, False),
    "of a fold in a call": (lambda x: jnp.sqrt(jax.checkpoint(jnp.max)(x)), True, True),
    "of a choice": (lambda x: jnp.sqrt(jax.lax.cond(x[0] > 1, jnp.sin, jnp.cos, x)), True, True),
    "of a choice that no cell makes": (
        lambda x: jnp.sqrt(jax.lax.cond(jnp.bool_(True), jnp.sin, jnp.cos, x)),
        True,
        False,
    ),
    "of sums by segment": (lambda x: jnp.sqrt(jax.ops.segment_sum(x, np.array([0, 1, 0, 1]), 2)), True, True),
    "of pieces": (lambda x: jnp.sqrt(jnp.split(x, 2)[1]), True, True),
    "of a matrix": (lambda x: jnp.linalg.cholesky(x.reshape(2, 2) + 2 * jnp.eye(2)), True, False),
    "of a matrix of sums": (lambda x: jnp.linalg.cholesky(x.sum() * jnp.eye(2)), True, True),
    "of what nobody here knows": (lambda x: jax.lax.nextafter(x.max(), jnp.float32(0)) * strange(x.max()), True, True),
    "places of cells": (lambda x: jnp.sqrt(x.reshape(2, 2).T[:, None] * jnp.ones((2, 3, 2))), True, False),
    "exponential": (lambda x: jnp.exp(x.max()) + jnp.tanh(x.sum()), False, False),
    "root of a number": (lambda x: x.max() * jnp.sqrt(jnp.float32(2)), False, False),
}


@pytest.mark.parametrize("name", AT)
def test_what_is_steep_is_read_off_the_program(name: str) -> None:
    function, everywhere, behind = AT[name]
    program = jax.make_jaxpr(function)(ONES).jaxpr
    assert (is_steep(program), is_steep_behind_folds(program)) == (everywhere, behind)


@pytest.mark.parametrize("name", [name for name, (_, everywhere, _) in AT.items() if not everywhere])
def test_what_is_not_steep_sends_zeros_back_of_zeros(name: str) -> None:
    function = AT[name][0]
    out, pull = jax.vjp(function, ZEROS)
    assert not np.any(pull(np.zeros_like(out))[0])
