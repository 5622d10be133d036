"""The aggregator of the area under the receiver operating characteristic, from binned scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregator import Aggregator
from combinators.aggregators.grid import Grid, bin_totals, columns, uniform
from combinators.aggregators.moments import LiftOne
from combinators.aggregators.weights import reference_weights, weigh
from combinators.pieces import InPieces


def AUC(bins: int = 1024, range: tuple[float, float] = (0.0, 1.0)) -> Aggregator:
    """Find the chance that a positive element scores higher than a negative one, scores of one bin being equal.

        AUC = sum over bins i of p_i (n_0 + ... + n_(i-1) + n_i / 2) / (sum p sum n)

    It is the exact area for the binned scores, and differs from that for the scores themselves by at most
    `sum(p_i n_i) / (2 sum p sum n)`, about `1 / (2 bins)` for spread scores.

    Args:
      bins: how many bins of one width there are; scores outside of them go to the nearest.
      range: the outer edges.

    Returns:
      An aggregator of labels (positive where not 0), scores and optionally weights to a float; NaN where there is no
      positive or no negative element. Elements with a NaN for a score are left out, as are those of weight 0 or below.

    Raises:
      GraphError: when there are no such bins.

    Source: Hanley and McNeil 1982.
    """
    grid = uniform("AUC", bins, *range)
    many = SidesMany(grid)
    return Aggregator(
        LiftOne(many),
        monoids.Sum,
        present_auc,
        lift_many=InPieces(many, monoids.Sum),
        reference=ReferenceAUC(grid),
        name="AUC",
    )


@final
@dataclass(frozen=True)
class SidesMany:
    """Count positive and negative elements by bin of their score, along the leading axis.

    Attributes:
      grid: the bins.
    """

    grid: Grid

    def __call__(self, labels: Any, scores: Any, weights: Any = None) -> Any:
        """Return two totals `(bins, ...)`: of positive and of negative elements."""
        found = self.grid.places(scores)
        places = jnp.where(found > self.grid.size, -1, jnp.clip(found, 0, self.grid.size - 1))
        amounts = None if weights is None else weigh(weights)[0]
        is_positive = jnp.asarray(labels) != 0
        return tuple(
            bin_totals(jnp.where(side, places, -1), self.grid.size, amounts) for side in (is_positive, ~is_positive)
        )


def present_auc(state: Any) -> Any:
    """Present the totals of both sides as the area."""
    positive, negative = (jnp.asarray(side, jnp.result_type(side, jnp.float32)) for side in state)
    # Shares, so that products neither overflow nor lose more digits than the shares have.
    share1, nothing1 = _shares(positive)
    share2, nothing2 = _shares(negative)
    below = jnp.cumsum(share2, axis=0) - share2 / 2
    return jnp.where(nothing1 | nothing2, jnp.nan, jnp.sum(share1 * below, axis=0))


def _shares(side: Any) -> tuple[Any, Any]:
    total = jnp.sum(side, axis=0)
    return side / jnp.where(total == 0, 1, total), total == 0


@final
@dataclass(frozen=True)
class ReferenceAUC:
    """Compare every positive element with every negative one in NumPy.

    Attributes:
      grid: the bins.
    """

    grid: Grid

    def __call__(self, labels: Any, scores: Any, weights: Any = None) -> Any:
        """Return the area, one for each cell."""
        weights = reference_weights(weights, len(labels))
        pairs = zip(columns(labels), columns(scores), strict=True)
        areas = [self._area(label, score, weights) for label, score in pairs]
        return np.reshape(areas, labels.shape[1:])

    def _area(self, labels: Any, scores: Any, weights: Any) -> Any:
        edges = np.asarray(self.grid.edges)
        bins = np.clip(np.searchsorted(edges, scores.astype(np.float64), side="right") - 1, 0, self.grid.size - 1)
        known = ~np.isnan(scores)
        positive, negative = known & (labels != 0), known & (labels == 0)
        pairs = weights[positive][:, None] * weights[negative].astype(np.float64)
        wins = np.sign(bins[positive][:, None] - bins[negative]) / 2 + 0.5
        return (pairs * wins).sum() / pairs.sum() if pairs.sum() else np.nan
