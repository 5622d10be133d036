"""The aggregator of linear regression."""

from __future__ import annotations

import math
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.covariance import covariance_many, deviations_of
from combinators.aggregators.moments import LiftOne
from combinators.aggregators.weights import reference_weights
from combinators.arguments import is_real
from combinators.errors import GraphError, message
from combinators.frozen import dataclass


def LinearRegression(ridge: float = 0.0) -> Aggregator:
    """Fit a linear function of several features: `tp.fold(LinearRegression(), "row [feature], row -> ")`.

        minimise  sum over elements of w (y - b - c . x)**2 + ridge |c|**2

    The state is the covariance of features and target together, so that fits merge. The equations are solved on
    features scaled to one size. The relative error grows with the square of the features' condition number, as it does
    wherever only products of features are kept.

    Args:
      ridge: penalty on the coefficients, not on the intercept; 0 or more.

    Returns:
      An aggregator of features `(d,)`, a target and optionally weights (as in `Moments`) to a dictionary:
      `coefficients` `(d,)`, `intercept`, `r2` (the share of the target's variance that the fit explains) and `count`.
      Where the features depend linearly on each other, up to rounding, and for nothing, the first three are NaN, with
      gradient 0; `r2` is also where the target has no spread.

    Raises:
      GraphError: when `ridge` is negative.

    Source: the normal equations; Hoerl and Kennard 1970 for the penalty.
    """
    if not is_real(ridge) or not 0 <= ridge < math.inf:
        raise GraphError(
            message("LinearRegression: `ridge` is negative.", "expected  0 or more, finite", f"got       {ridge!r}")
        )
    return Aggregator(
        LiftOne(regression_many),
        monoids.Covariance,
        PresentRegression(float(ridge)),
        lift_many=regression_many,
        reference=ReferenceRegression(float(ridge)),
        name="LinearRegression",
    )


def regression_many(features: Any, target: Any, weights: Any = None) -> Any:
    """Find the covariance of features `(n, d)` and target `(n,)` along the leading axis; the target comes last."""
    dtype = jnp.result_type(features, target, jnp.float32)
    rows = jnp.concatenate([jnp.asarray(features, dtype), jnp.asarray(target, dtype)[:, None]], axis=1)
    return covariance_many(rows, weights)


@final
@dataclass(frozen=True)
class PresentRegression:
    """Solve the normal equations.

    Attributes:
      ridge: penalty on the coefficients.
    """

    ridge: float

    def __call__(self, state: Any) -> Any:
        """Return coefficients, intercept, r2 and count."""
        count, mean, products = state
        scale, is_spread = deviations_of(state)
        if self.ridge:
            scale = jnp.sqrt(jnp.where(is_spread, jnp.diagonal(products), 0) + self.ridge)
        scale, total = scale[:-1], products[-1, -1]
        penalty = self.ridge * jnp.eye(scale.shape[0], dtype=products.dtype)
        matrix = (products[:-1, :-1] + penalty) / jnp.outer(scale, scale)
        usable = jnp.all(is_spread[:-1]) if not self.ridge else jnp.asarray(True)
        solvable = (count > 0) & usable & _is_regular(matrix)
        # The identity takes the place of what cannot be solved, so that no derivative is infinite.
        matrix = jnp.where(solvable, matrix, jnp.eye(scale.shape[0], dtype=matrix.dtype))
        factor = jnp.linalg.cholesky(matrix)
        solved = jax.scipy.linalg.cho_solve((factor, True), products[:-1, -1] / scale) / scale
        # As a share of its own, and not as what a residual leaves of 1, it keeps its digits where it is small.
        share = 2 * solved @ products[:-1, -1] - solved @ products[:-1, :-1] @ solved
        explained = solvable & is_spread[-1]
        return {
            "coefficients": jnp.where(solvable, solved, jnp.nan),
            "intercept": jnp.where(solvable, mean[-1] - solved @ mean[:-1], jnp.nan),
            "r2": jnp.where(explained, share / jnp.where(explained, total, 1), jnp.nan),
            "count": count,
        }


def _is_regular(matrix: Any) -> Any:
    """Whether a matrix with a diagonal of ones is positive definite by more than rounding."""
    pivots = jnp.diagonal(jnp.linalg.cholesky(lax.stop_gradient(matrix)))
    # Comparisons with NaN, which a factorisation that breaks down leaves, are false.
    return jnp.all(pivots**2 > 10 * float(jnp.finfo(matrix.dtype).resolution))


@final
@dataclass(frozen=True)
class ReferenceRegression:
    """Fit in NumPy, in float64, by least squares and without normal equations.

    Attributes:
      ridge: penalty on the coefficients.
    """

    ridge: float

    def __call__(self, features: Any, target: Any, weights: Any = None) -> Any:
        """Return the dictionary that `PresentRegression` does."""
        limits = np.finfo(np.float64 if features.dtype == np.float64 else np.float32)
        weights = reference_weights(weights, len(target))
        kept, count = weights > 0, np.asarray(weights.sum())
        size = features.shape[1]
        nothing = {"coefficients": np.full(size, np.nan), "intercept": np.asarray(np.nan), "r2": np.asarray(np.nan)}
        nothing["count"] = count
        if not kept.any():
            return nothing
        xs, y = np.asarray(features[kept], np.float64), np.asarray(target[kept], np.float64)
        weights = weights[kept].astype(np.float64)
        mean, level = np.average(xs, axis=0, weights=weights), np.average(y, weights=weights)
        root = np.sqrt(weights)
        centred, wanted = (xs - mean) * root[:, None], (y - level) * root
        rows = np.concatenate([centred, np.sqrt(self.ridge) * np.eye(size)])
        scale = np.sqrt((rows**2).sum(0))
        spread = (centred**2).sum(0) / weights.sum() > (limits.eps * mean) ** 2
        if not (scale > 0).all() or not (spread.all() or self.ridge):
            return nothing
        if (np.diagonal(np.linalg.qr(rows / scale).R) ** 2 <= 10 * limits.resolution).any():
            return nothing
        solved = np.linalg.lstsq(rows / scale, np.concatenate([wanted, np.zeros(size)]))[0] / scale
        total = (wanted**2).sum()
        is_explained = total / weights.sum() > (limits.eps * level) ** 2
        r2 = 1 - ((wanted - centred @ solved) ** 2).sum() / total if is_explained else np.nan
        found = {"coefficients": solved, "intercept": np.asarray(level - mean @ solved), "r2": np.asarray(r2)}
        return found | {"count": count}
