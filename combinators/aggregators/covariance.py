"""The aggregators of covariance and correlation."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.moments import LiftOne, moved_mean, real
from combinators.aggregators.sums import origin_near, unit_of, weighted_origin
from combinators.aggregators.weights import reference_weights, total_weight, weigh

BLOCK = 4096
"""Rows whose products one matrix product adds; such partial sums are added afterwards, which keeps rounding small."""


def Covariance() -> Aggregator:
    """Find count, mean and covariance matrix of vectors: `tp.fold(Covariance(), "row [feature] -> ")`.

    Returns:
      An aggregator of one real input whose elements are vectors `(d,)`, and optionally of weights, to a dictionary:
      `count` (an integer; the total where weights are floats), `mean` `(d,)` and `covariance` `(d, d)` (of the
      population: divided by the count), floats of at least 32 bits. Of nothing mean and covariance are NaN, with
      gradient 0. What overflows is infinite. Weights are as in `Moments`.

    Source: Chan, Golub, LeVeque 1983; Pebay 2008.
    """
    return Aggregator(
        LiftOne(covariance_many),
        monoids.Covariance,
        present_covariance,
        lift_many=covariance_many,
        reference=reference_covariance,
        name="Covariance",
    )


def Correlation() -> Aggregator:
    """Find the matrix of Pearson's correlation coefficients of vectors.

    Returns:
      An aggregator of inputs as in `Covariance` to floats `(d, d)`. The rows and columns of a feature whose standard
      deviation is not more than one rounding unit of its mean (1.2e-7 of it in float32) are NaN, with gradient 0; so
      are those of one whose sum of squared deviations overflows or underflows (outside of 1e-38 to 3e38 in float32);
      all are for nothing.
    """
    return Aggregator(
        LiftOne(covariance_many),
        monoids.Covariance,
        present_correlation,
        lift_many=covariance_many,
        reference=reference_correlation,
        name="Correlation",
    )


def covariance_many(xs: Any, weights: Any = None) -> Any:
    """Find count, means and products of deviations along the leading axis.

    Products are summed around a number near the mean, in a unit near the spread, and then moved to the mean.

    Args:
      xs: real array `(n, d)`.
      weights: None or `(n,)`.

    Returns:
      `(count, mean, products)` of shapes `()`, `(d,)` and `(d, d)`.
    """
    xs = real("Covariance", xs)
    if weights is None:
        count, origin, unit = jnp.asarray(xs.shape[0], int), origin_near(xs), unit_of(xs)
        weighted = deviations = xs * (1 / unit) - origin / unit
    else:
        weights, xs = weigh(weights, xs)
        count, column = total_weight(weights), weights.astype(xs.dtype)[:, None]
        origin, unit = weighted_origin(column, xs, count), unit_of(xs)
        deviations = xs * (1 / unit) - origin / unit
        weighted = column * deviations
    total, products = _total_and_products(weighted, deviations)
    step = total / _divisor(count, xs)
    products = products - count.astype(xs.dtype) * jnp.outer(step, step)
    squares = jnp.diagonal(products)
    # Constant data can round to a tiny negative sum. A comparison keeps the gradient whole; a maximum would halve it.
    products = products - jnp.diag(jnp.where(squares < 0, squares, 0))
    # One unit after the other, so that what overflows is infinite and nothing in between is.
    return count, moved_mean(origin, step * unit), products * unit * unit[:, None]


def _total_and_products(left: Any, right: Any) -> tuple[Any, Any]:
    """Sum the rows of the first, and the outer products of corresponding rows, block by block."""
    whole = left.shape[0] - left.shape[0] % BLOCK
    total, products = _summed(left[None, whole:], right[None, whole:])
    if whole == 0:
        return total, products
    # One array for both sums: XLA would undo the cut for the first of them, and write the rows to memory twice.
    first = lax.optimization_barrier(left[:whole].reshape(-1, BLOCK, left.shape[1]))
    second = first if right is left else right[:whole].reshape(-1, BLOCK, right.shape[1])
    more, others = _summed(first, second)
    return total + more, products + others


def _summed(left: Any, right: Any) -> tuple[Any, Any]:
    products = jnp.einsum("bni,bnj->bij", left, right, precision=lax.Precision.HIGHEST)
    return jnp.sum(left, axis=(0, 1)), jnp.sum(products, axis=0)


def present_covariance(state: Any) -> Any:
    """Present count, mean and covariance by name."""
    count, mean, products = state
    nothing = count <= 0
    return {
        "count": count,
        "mean": jnp.where(nothing, jnp.nan, mean),
        "covariance": jnp.where(nothing, jnp.nan, products / _divisor(count, products)),
    }


def present_correlation(state: Any) -> Any:
    """Divide products of deviations by the roots of the squares of both."""
    _, _, products = state
    scale, is_spread = deviations_of(state)
    scaled = products / jnp.outer(scale, scale)
    known = is_spread[:, None] & is_spread[None, :]
    # A feature's correlation with itself is 1 whatever the rounding.
    return jnp.where(known, jnp.where(jnp.eye(products.shape[0], dtype=bool), 1, scaled), jnp.nan)


def deviations_of(state: Any) -> tuple[Any, Any]:
    """The roots of the sums of squares of each feature, and whether they are more than rounding.

    Args:
      state: `(count, mean, products)`.

    Returns:
      `(d,)` floats, 1 where there is no spread, and `(d,)` booleans.
    """
    count, mean, products = state
    squares = jnp.diagonal(products)
    limits = jnp.finfo(products.dtype)
    is_spread = squares > count.astype(mean.dtype) * (float(limits.eps) * mean) ** 2
    is_spread = is_spread & (squares >= float(limits.tiny)) & jnp.isfinite(squares) & (count > 0)
    return jnp.sqrt(jnp.where(is_spread, squares, 1)), is_spread


def reference_covariance(xs: Any, weights: Any = None) -> Any:
    """Find count, mean and covariance in NumPy, in float64."""
    weights = reference_weights(weights, len(xs))
    kept, count = weights > 0, np.asarray(weights.sum())
    if not kept.any():
        size = xs.shape[1]
        return {"count": count, "mean": np.full(size, np.nan), "covariance": np.full((size, size), np.nan)}
    xs, weights = np.asarray(xs[kept], np.float64), weights[kept].astype(np.float64)
    mean = np.average(xs, axis=0, weights=weights)
    covariance = np.cov(xs.T, aweights=weights, ddof=0) if len(xs) > 1 else np.zeros((xs.shape[1],) * 2)
    return {"count": count, "mean": mean, "covariance": np.reshape(covariance, (xs.shape[1],) * 2)}


def reference_correlation(xs: Any, weights: Any = None) -> Any:
    """Find correlations in NumPy, in float64."""
    found = reference_covariance(xs, weights)
    limits = np.finfo(np.float64 if xs.dtype == np.float64 else np.float32)
    with np.errstate(all="ignore"):
        squares = np.diagonal(found["covariance"])
        total = squares * found["count"]
        is_spread = (squares > (limits.eps * found["mean"]) ** 2) & (total >= limits.tiny) & (total < limits.max)
        deviations = np.sqrt(np.where(is_spread, squares, np.nan))
        return found["covariance"] / np.outer(deviations, deviations)


def _divisor(count: Any, like: Any) -> Any:
    return jnp.where(count == 0, 1, count).astype(like.dtype)
