"""The aggregator of sums that keep what rounding takes away."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.errors import GraphError, message
from combinators.monoids.compensated_sum import compensated_value


def CompensatedSum() -> Aggregator:
    """Add up floats as if with twice their digits.

    Returns:
      An aggregator of one real float input to a float of at least 32 bits. The result does not depend on the order of
      the elements beyond its last digit: `|result - sum x| <= u |sum x| + (n u)**2 sum |x|`, `u = 2**-24` for float32.
      The sum of nothing is 0; infinities and NaN are as in `Sum`. Gradients are those of `Sum`.

    Source: Neumaier 1974; Ogita, Rump, Oishi 2005.
    """
    return Aggregator(
        lift_compensated,
        monoids.CompensatedSum,
        compensated_value,
        lift_many=compensated_many,
        reference=reference_compensated,
        name="CompensatedSum",
    )


def lift_compensated(x: Any) -> Any:
    """Make the state of one element, which nothing was taken from."""
    x = _float(jnp.asarray(x))
    return x, jnp.zeros_like(x)


def compensated_many(xs: Any) -> Any:
    """Add along the leading axis by a balanced tree.

    Args:
      xs: real floats `(n, ...)`.

    Returns:
      `(total, error)`.

    Raises:
      GraphError: when the input is not of real floats.
    """
    return monoids.CompensatedSum.fold_stacked(lift_compensated(xs))


def reference_compensated(xs: Any) -> Any:
    """Add exactly with `math.fsum`, and round once."""
    xs = np.asarray(xs, np.float64)
    sums = np.empty(xs.shape[1:])
    for at in np.ndindex(*sums.shape):
        sums[at] = _exact(xs[(slice(None), *at)])
    return sums[()]


def _exact(column: Any) -> float:
    return math.fsum(column) if np.all(np.isfinite(column)) else float(np.sum(column))


def _float(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise GraphError(
            message(
                "CompensatedSum: the input is complex.",
                "expected  real floats",
                f"got       {x.dtype.name}",
                remedy="Add real and imaginary parts on their own.",
            )
        )
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
