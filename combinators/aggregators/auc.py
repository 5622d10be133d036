"""The aggregator of the area under the receiver operating characteristic, from binned scores."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.grid import Grid, bin_totals, columns, ends_of, uniform
from combinators.aggregators.moments import LiftOne
from combinators.aggregators.weights import float_weights, reference_weights
from combinators.frozen import dataclass
from combinators.merging.pieces import InPieces


def AUC(bins: int = 1024, range: tuple[float, float] = (0.0, 1.0)) -> Aggregator:
    """Find the chance that a positive element scores higher than a negative one, scores of one bin being equal.

        AUC = sum over bins i of p_i (n_0 + ... + n_(i-1) + n_i / 2) / (sum p sum n)

    It is the exact area for the binned scores, and differs from that for the scores themselves by at most
    `sum(p_i n_i) / (2 sum p sum n)`, about `1 / (2 bins)` for spread scores.

    Args:
      bins: how many bins of one width there are.
      range: the outer edges. Scores below all bins, and above, are counted on their own, and rank there.

    Returns:
      An aggregator of labels (positive where not 0), scores and optionally weights to a float; NaN where there is no
      positive or no negative element, and where both have scores below the range, or above: their order is lost, and
      the area might be anything. Pass a wider range then. Elements with a NaN for a score are left out, as are those of
      weight 0 or below.

    Raises:
      GraphError: when there are no such bins.

    Source: Hanley and McNeil 1982.
    """
    grid = uniform("AUC", bins, *ends_of("AUC", range))
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
        """Return two totals `(bins + 2, ...)`, of positive and of negative elements: below, in the bins, and above."""
        # A NaN has the place behind the one above, where totals leave it out.
        places, size = self.grid.places(scores) + 1, self.grid.size + 2
        amounts = None if weights is None else float_weights(weights)
        is_positive = jnp.asarray(labels) != 0
        return tuple(bin_totals(jnp.where(side, places, -1), size, amounts) for side in (is_positive, ~is_positive))


def present_auc(state: Any) -> Any:
    """Present the totals of both sides as the area."""
    positive, negative = (jnp.asarray(side, jnp.result_type(side, jnp.float32)) for side in state)
    # Shares, so that products neither overflow nor lose more digits than the shares have.
    share1, nothing1 = _shares(positive)
    share2, nothing2 = _shares(negative)
    below = jnp.cumsum(share2, axis=0) - share2 / 2
    met = (positive > 0) & (negative > 0)
    return jnp.where(nothing1 | nothing2 | met[0] | met[-1], jnp.nan, jnp.sum(share1 * below, axis=0))


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
        scores = scores.astype(np.float64)
        bins = np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, self.grid.size - 1)
        below, above = scores < edges[0], scores > edges[-1]
        bins = np.where(below, -1, np.where(above, self.grid.size, bins))
        known = ~np.isnan(scores) & (weights > 0)
        positive, negative = known & (labels != 0), known & (labels == 0)
        if any((outside & positive).any() and (outside & negative).any() for outside in (below, above)):
            return np.nan
        pairs = weights[positive][:, None] * weights[negative].astype(np.float64)
        wins = np.sign(bins[positive][:, None] - bins[negative]) / 2 + 0.5
        return (pairs * wins).sum() / pairs.sum() if pairs.sum() else np.nan
