"""A function whose derivative, which its author wrote, is not that of its code."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


@jax.custom_jvp
def odd(x: Any) -> Any:
    """A sine; its derivative is three times the product of two of its own calls."""
    return jnp.sin(x)


@odd.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    return odd(x), 3 * odd(x) * odd(2 * x) * moved
