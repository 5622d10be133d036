"""The aggregator of the calibration error of predicted probabilities."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.grid import Grid, bin_totals, columns, uniform
from combinators.aggregators.moments import LiftOne
from combinators.aggregators.weights import reference_weights
from combinators.frozen import dataclass
from combinators.merging.pieces import InPieces


def CalibrationError(bins: int = 15) -> Aggregator:
    """Compare predicted probabilities with what came true, bin by bin.

        error = sum over bins of (n_b / n) |frequency_b - confidence_b|

    Args:
      bins: how many bins of one width between 0 and 1.

    Returns:
      An aggregator of outcomes (true where not 0), probabilities and optionally weights to a dictionary: `error`, the
      expected calibration error; `maximum`, the largest of a bin; and the reliability diagram, `(bins,)` each:
      `weight`, `confidence` (the mean probability) and `frequency` (of what came true), NaN in empty bins. Both errors
      of nothing are NaN, with gradient 0. Probabilities outside of 0 to 1, and NaN, are left out. All have gradients by
      the probabilities, which do not see how bins change.

    Raises:
      GraphError: when there are no such bins.

    Source: Naeini, Cooper, Hauskrecht 2015; Guo et al. 2017, eq. 3.
    """
    grid = uniform("CalibrationError", bins, 0.0, 1.0)
    many = CalibrationMany(grid)
    return Aggregator(
        LiftOne(many),
        monoids.Sum,
        present_calibration,
        lift_many=InPieces(many, monoids.Sum),
        reference=ReferenceCalibration(grid),
        name="CalibrationError",
    )


@final
@dataclass(frozen=True)
class CalibrationMany:
    """Total weights, probabilities and outcomes by bin along the leading axis.

    Attributes:
      grid: the bins.
    """

    grid: Grid

    def __call__(self, outcomes: Any, probabilities: Any, weights: Any = None) -> Any:
        """Return three totals `(bins, ...)`: weight, weight times probability, weight of what came true."""
        probabilities = jnp.asarray(probabilities)
        probabilities = probabilities.astype(jnp.promote_types(probabilities.dtype, jnp.float32))
        places = self.grid.places(probabilities)
        weights = jnp.ones(places.shape[0]) if weights is None else jnp.asarray(weights)
        weights = jnp.where(weights > 0, weights, 0).astype(probabilities.dtype)
        spread = jnp.reshape(weights, weights.shape + (1,) * (places.ndim - weights.ndim))
        # What has no bin is dropped, but 0 * NaN would reach the gradient of the weights.
        inside = (places >= 0) & (places < self.grid.size)
        amounts = (
            weights,
            spread * jnp.where(inside, probabilities, 0),
            jnp.where(jnp.asarray(outcomes) != 0, spread, 0),
        )
        return tuple(bin_totals(places, self.grid.size, amount) for amount in amounts)


def present_calibration(state: Any) -> Any:
    """Present totals by bin as errors and as a reliability diagram."""
    weight, confidence, frequency = state
    total = jnp.sum(weight, axis=0)
    empty = weight == 0
    gaps = jnp.abs(frequency - confidence)
    error = jnp.sum(gaps, axis=0) / jnp.where(total == 0, 1, total)
    each = jnp.where(empty, 1, weight)
    return {
        "error": jnp.where(total == 0, jnp.nan, error),
        "maximum": jnp.where(total == 0, jnp.nan, jnp.max(jnp.where(empty, 0, gaps / each), axis=0)),
        "weight": weight,
        "confidence": jnp.where(empty, jnp.nan, confidence / each),
        "frequency": jnp.where(empty, jnp.nan, frequency / each),
    }


@final
@dataclass(frozen=True)
class ReferenceCalibration:
    """Compare probabilities with what came true in NumPy.

    Attributes:
      grid: the bins.
    """

    grid: Grid

    def __call__(self, outcomes: Any, probabilities: Any, weights: Any = None) -> Any:
        """Return the dictionary that `present_calibration` does."""
        weights = reference_weights(weights, len(outcomes)).astype(np.float64)
        pairs = zip(columns(outcomes), columns(probabilities), strict=True)
        rows = [self._row(*pair, weights) for pair in pairs]
        stacked = {name: np.stack([row[name] for row in rows], axis=-1) for name in rows[0]}
        return {name: np.reshape(value, value.shape[:-1] + outcomes.shape[1:]) for name, value in stacked.items()}

    def _row(self, outcomes: Any, probabilities: Any, weights: Any) -> Any:
        probabilities, edges = probabilities.astype(np.float64), np.asarray(self.grid.edges)
        inside = (probabilities >= 0) & (probabilities <= 1)
        inside_weights = weights[inside]
        totals = [
            np.histogram(probabilities[inside], edges, weights=inside_weights * amount)[0]
            for amount in (1.0, probabilities[inside], (outcomes != 0)[inside])
        ]
        weight, total = totals[0], totals[0].sum()
        with np.errstate(all="ignore"):
            confidence, frequency = totals[1] / weight, totals[2] / weight
            gaps = np.abs(frequency - confidence)
            error = np.nansum(gaps * weight) / total
            largest = np.max(np.where(weight > 0, gaps, 0)) if total else np.nan
        return {
            "error": np.asarray(error),
            "maximum": np.asarray(largest),
            "weight": weight,
            "confidence": confidence,
            "frequency": frequency,
        }
