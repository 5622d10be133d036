"""What a kernel's forward pass leaves in memory for its backward pass, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.planning.pricing.counting.count import count_backward

ROWS, INNER, COLUMNS = 8, 4, 16
X, W = jax.ShapeDtypeStruct((ROWS, INNER), jnp.float32), jax.ShapeDtypeStruct((INNER, COLUMNS), jnp.float32)
SMALL, LARGE = 4 * ROWS * INNER, 4 * ROWS * COLUMNS


def _narrow_probabilities(x: Any, w: Any) -> Any:
    """As an attention: the logits, and what the product reads."""
    weights = jnp.exp(x @ w)
    return (weights / jnp.sum(weights, 1, keepdims=True)).astype(jnp.bfloat16) @ w.T.astype(jnp.bfloat16)


CASES: dict[str, tuple[Callable[..., Any], float]] = {
    "elementwise work is done again": (lambda x, w: jnp.sum(x * x * 3, keepdims=True) + 0 * jnp.sum(w), 0),
    "a product of arguments asks for nothing else": (lambda x, w: x @ w, 0),
    "what a product reads stands in memory": (lambda x, w: (x * x) @ w, SMALL),
    "what a product gives, for what is computed of it": (lambda x, w: jnp.sin(x @ w), LARGE),
    "elementwise work on a product, which is one": (lambda x, w: jnp.tanh(x @ w) * 3 * jnp.cos(x @ w), 2 * LARGE),
    "of a softmax": (_narrow_probabilities, LARGE + 4 * ROWS + LARGE // 2 + 2 * INNER * COLUMNS),
}


@pytest.mark.parametrize("name", CASES)
def test_what_stays_for_the_backward_pass(name: str) -> None:
    function, wanted = CASES[name]
    counts = count_backward(lambda *arrays: [function(*arrays)], (X, W), (0, 1))
    assert counts.kept == wanted
