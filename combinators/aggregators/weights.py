"""Weights of elements: what an aggregator's optional last input means."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np


def weigh(weights: Any, *arrays: Any) -> tuple[Any, ...]:
    """Read weights, and blank out what they leave out.

    An element of weight `w` counts as `w` equal ones. Booleans are a mask. Elements whose weight is 0, negative or NaN
    are left out, whatever they hold.

    Args:
      weights: `(n,)`; booleans, integers or floats.
      arrays: `(n, ...)`; the elements.

    Returns:
      The weights, at least 0, as integers (int32; int64 where x64 is enabled) or floats of at least 32 bits; then the
      arrays, with 0 for what is left out.
    """
    weights = jnp.asarray(weights)
    is_float = jnp.issubdtype(weights.dtype, jnp.floating)
    weights = weights.astype(jnp.promote_types(weights.dtype, jnp.float32) if is_float else int)
    counts = weights > 0
    blanked = [jnp.where(over(counts, array), array, 0).astype(array.dtype) for array in map(jnp.asarray, arrays)]
    return jnp.where(counts, weights, 0), *blanked


def float_weights(weights: Any) -> Any:
    """Read weights for a result that is a float: their totals do not wrap around.

    Args:
      weights: as in `weigh`.

    Returns:
      Floats of at least 32 bits, at least 0.
    """
    (weights,) = weigh(weights)
    wide = jnp.float64 if weights.dtype.itemsize == 8 else jnp.float32
    return weights.astype(jnp.promote_types(weights.dtype, wide))


def total_weight(weights: Any) -> Any:
    """Total weights `(n,)` as a count; integers that overflow give the least integer, and no count that could be one.

    Args:
      weights: as `weigh` gives them.
    """
    count = jnp.sum(weights, axis=0)
    if jnp.issubdtype(count.dtype, jnp.floating):
        return count
    limits, rough = jnp.iinfo(count.dtype), jnp.float64 if count.dtype.itemsize == 8 else jnp.float32
    overflows = jnp.sum(weights.astype(rough), axis=0) >= rough(limits.max)
    return jnp.where(overflows, jnp.asarray(limits.min, count.dtype), count)


def over(weights: Any, xs: Any) -> Any:
    """Give weights the trailing axes of the elements."""
    return jnp.reshape(weights, weights.shape + (1,) * (jnp.ndim(xs) - jnp.ndim(weights)))


def reference_weights(weights: Any, count: int) -> Any:
    """Read weights in NumPy, in float64 where they are floats.

    Args:
      weights: as in `weigh`, or None for elements that count 1 each.
      count: how many elements there are.

    Returns:
      Integers or floats `(count,)`, at least 0.
    """
    if weights is None:
        return np.ones(count, int)
    weights = np.asarray(weights)
    if weights.dtype.kind in "biu":
        return np.maximum(weights.astype(int), 0)
    return np.where(weights > 0, weights, 0).astype(np.float64)
