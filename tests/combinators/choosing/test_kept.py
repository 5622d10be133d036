"""What replaces values with what they equal chooses nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.choosing.kept import keeping

# By name: the function, and how many of its comparisons choose nothing.
KEPT: dict[str, tuple[Any, int]] = {
    "zeros have no sign": (lambda x: jnp.where(x == 0, 0.0, x), 1),
    "what is no number has one form": (lambda x: jnp.where(jnp.isnan(x), jnp.nan, x), 1),
    "both": (lambda x: jnp.where(jnp.isnan(x), jnp.nan, jnp.where(x == 0, 0.0, x)), 2),
    "another number": (lambda x: jnp.where(x == 0, 1.0, x), 0),
    "another value": (lambda x: jnp.where(x == 0, 0.0, x + 1), 0),
    "none for a number": (lambda x: jnp.where(jnp.isnan(x), 0.0, x), 0),
    "the other way round": (lambda x: jnp.where(x == 0, x, 0.0), 0),
    "read once more": (lambda x: (lambda is_zero: jnp.where(is_zero, 0.0, x) + is_zero)(x == 0), 0),
    "given": (lambda x: x == 0, 0),
    "less": (lambda x: jnp.where(x < 0, 0.0, x), 0),
}


@pytest.mark.parametrize("name", KEPT)
def test_comparisons_that_choose_nothing(name: str) -> None:
    function, expected = KEPT[name]
    with jax.disable_jit():  # `jnp.where` is a program of its own
        found = keeping(jax.make_jaxpr(function)(np.ones(3, np.float32)).jaxpr)
    assert len(found) == expected
