"""Aggregators that count and average."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregator import Aggregator
from combinators.aggregators.elementwise import present_state


def Count() -> Aggregator:
    """Count the elements.

    Returns:
      An aggregator of one input to a scalar integer (int32; int64 where x64 is enabled). NaN counts.
    """
    return Aggregator(
        lift_count, monoids.Sum, present_state, lift_many=count_many, reference=reference_count, name="Count"
    )


def Mean() -> Aggregator:
    """Average the elements.

    Integers are totalled exactly as integers; half-precision floats in float32. The state is a plain sum, so one native
    collective folds it; where the values are far from zero, `Moments` is more accurate.

    Returns:
      An aggregator of one input to a float; the mean of nothing is NaN, with gradient 0.
    """
    return Aggregator(lift_mean, monoids.Mean, present_mean, lift_many=mean_many, reference=reference_mean, name="Mean")


def count_many(xs: Any) -> Any:
    """Count along the leading axis."""
    return jnp.asarray(xs.shape[0], int)


def lift_count(x: Any) -> Any:
    """Count one element."""
    del x
    return jnp.asarray(1, int)


def reference_count(xs: Any) -> Any:
    """Count in NumPy."""
    return np.asarray(len(xs))


def mean_many(xs: Any) -> Any:
    """Total and count along the leading axis."""
    if jnp.issubdtype(xs.dtype, jnp.floating):
        xs = xs.astype(jnp.promote_types(xs.dtype, jnp.float32))
    return jnp.sum(xs, axis=0), count_many(xs)


def lift_mean(x: Any) -> Any:
    """Total and count one element."""
    return mean_many(jnp.asarray(x)[None])


def present_mean(state: Any) -> Any:
    """Divide a total by its count."""
    total, count = state
    return jnp.where(count == 0, jnp.nan, total / jnp.maximum(count, 1))


def reference_mean(xs: Any) -> Any:
    """Average in NumPy, in float64."""
    if len(xs) == 0:
        return np.full(xs.shape[1:], np.nan)
    return np.mean(xs, axis=0, dtype=np.complex128 if np.iscomplexobj(xs) else np.float64)
