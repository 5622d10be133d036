"""Which derivatives are linear in what they pull back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.planning.derivatives.linear import pulls_linearly

X = jax.ShapeDtypeStruct((4, 3), jnp.float32)

LINEAR: list[Any] = [
    lambda x, g: g,
    lambda x, g: g * (1 - x * x) / 2,
    lambda x, g: jnp.where(x > 0, g, 0.0),
    lambda x, g: jnp.zeros_like(x),
    lambda x, g: jax.nn.relu(x) * (g @ jnp.ones((3, 3))).astype(jnp.bfloat16).astype(jnp.float32),
]
OTHER: list[Any] = [
    lambda x, g: jnp.clip(g, -1, 1),
    lambda x, g: g + 0.5,
    lambda x, g: jnp.sign(g),
    lambda x, g: g * g,
    lambda x, g: x,
    lambda x, g: jnp.where(g > 0, g, 0.0),
    lambda x, g: jnp.where(x > 0, g, 1.0),
    lambda x, g: g / jnp.linalg.norm(g),
    lambda x, g: x / (1 + g),
    lambda x, g: (4 * g).astype(jnp.int32).astype(jnp.float32) / 4,
]


@pytest.mark.parametrize(("rule", "expected"), [*((r, True) for r in LINEAR), *((r, False) for r in OTHER)])
def test_a_derivative_that_somebody_wrote_is_read(rule: Any, expected: bool) -> None:
    @jax.custom_vjp
    def kernel(x: Any) -> Any:
        return jnp.tanh(x)

    kernel.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (rule(x, g),))
    assert pulls_linearly(lambda x: kernel(x) * 2, [X]) is expected


def test_those_of_jax_are_linear() -> None:
    assert pulls_linearly(
        lambda x, at: (jax.nn.gelu(x) + jax.nn.softmax(x), x[at]), [X, jax.ShapeDtypeStruct((), jnp.int32)]
    )
