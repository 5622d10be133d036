"""The aggregator of count, mean and variance."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregator import Aggregator
from combinators.errors import GraphError, message


def Moments() -> Aggregator:
    """Find count, mean and variance in one fold.

    Returns:
      An aggregator of one real input to a dictionary: `count` (an integer), `mean` and `variance` (of the population:
      divided by the count), floats of at least 32 bits. Mean and variance of nothing are NaN, with gradient 0.

    Source: Chan, Golub, LeVeque 1983, the corrected two-pass algorithm (eq. 1.7) and the pairwise merge (eq. 2.1).
    """
    return Aggregator(
        lift_moments,
        monoids.Moments,
        present_moments,
        lift_many=moments_many,
        reference=reference_moments,
        name="Moments",
    )


def moments_many(xs: Any) -> Any:
    """Find the moments along the leading axis in two passes: the mean, then deviations from it.

    The mean of the first pass was rounded, which both sums of the second pass are corrected for.

    Args:
      xs: real array `(n, ...)`.

    Returns:
      `(count, mean, m2)`.

    Raises:
      GraphError: when the input is complex.
    """
    xs = _real(xs)
    size = xs.shape[0]
    divisor = max(size, 1)
    # The result does not depend on the origin, so no derivative flows through it.
    origin = lax.stop_gradient(jnp.sum(xs, axis=0) / divisor)
    deviations = xs - origin
    total = jnp.sum(deviations, axis=0)
    squares = jnp.sum(deviations * deviations, axis=0) - total * (total / divisor)
    # Constant data can round to a tiny negative sum. A comparison keeps the gradient whole; a maximum would halve it.
    squares = jnp.where(squares < 0, 0, squares)
    return jnp.asarray(size, int), origin + _finite(total / divisor), squares


def lift_moments(x: Any) -> Any:
    """Find the moments of one element: itself, without deviation."""
    x = _real(jnp.asarray(x))
    # The deviation of an infinite element from itself is NaN, as it is along an axis.
    return jnp.asarray(1, int), x, x - x


def present_moments(state: Any) -> Any:
    """Present moments by name.

    Args:
      state: `(count, mean, m2)`.

    Returns:
      A dictionary of count, mean and population variance.
    """
    count, mean, squares = state
    divisor = jnp.maximum(count, 1).astype(squares.dtype)
    return {
        "count": count,
        "mean": jnp.where(count == 0, jnp.nan, mean),
        "variance": jnp.where(count == 0, jnp.nan, squares / divisor),
    }


def reference_moments(xs: Any) -> Any:
    """Find count, mean and variance in NumPy, in float64."""
    if len(xs) == 0:
        nothing = np.full(xs.shape[1:], np.nan)
        return {"count": np.asarray(0), "mean": nothing, "variance": nothing}
    return {
        "count": np.asarray(len(xs)),
        "mean": np.mean(xs, axis=0, dtype=np.float64),
        "variance": np.var(xs, axis=0, dtype=np.float64),
    }


def _real(xs: Any) -> Any:
    if jnp.issubdtype(xs.dtype, jnp.complexfloating):
        raise GraphError(
            message(
                "Moments: the input is complex.",
                "expected  integers, booleans or real floats",
                f"got       {xs.dtype}",
                remedy="Aggregate real and imaginary parts on their own.",
            )
        )
    return xs.astype(jnp.promote_types(xs.dtype, jnp.float32))


def _finite(step: Any) -> Any:
    """Drop a correction that is not finite: an infinite mean stays infinite, as in NumPy."""
    return jnp.where(jnp.isfinite(step), step, 0)
