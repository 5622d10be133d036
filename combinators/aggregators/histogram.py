"""The aggregator of a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.grid import Grid, between, bin_totals, columns, ends_of, uniform
from combinators.aggregators.moments import LiftOne
from combinators.aggregators.weights import reference_weights, weigh
from combinators.arguments import is_whole
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.pieces import InPieces


def Histogram(bins: int | Sequence[float], range: tuple[float, float] | None = None) -> Aggregator:
    """Count elements by bin, those below, above and without a place too, so that nothing is lost.

    Args:
      bins: how many bins of one width there are between the ends of `range`; or the edges, increasing.
      range: the outer edges, where `bins` is a number.

    Returns:
      An aggregator of one real input, and optionally of weights, to a dictionary: `counts` of shape `(bins,)`,
      `underflow`, `overflow` and `nan`. Bins are `[a, b)`, the last one `[a, b]`, as in NumPy, and edges are exact.
      Counts are integers, which wrap around as in `Count`, or floats where weights are, and 0 for nothing. They have a
      gradient by the weights. Weights of 0 or below leave elements out. The state is a plain sum: one native collective
      folds it.

    Raises:
      GraphError: when there are no such bins.
    """
    grid = _grid(bins, range)
    many = HistogramMany(grid)
    return Aggregator(
        LiftOne(many),
        monoids.Sum,
        present_histogram,
        lift_many=InPieces(many, monoids.Sum),
        reference=ReferenceHistogram(grid),
        name="Histogram",
    )


def _grid(bins: int | Sequence[float], ends: tuple[float, float] | None) -> Grid:
    given: Any = bins
    if not is_whole(given):
        return between("Histogram", given)
    if ends is None:
        raise GraphError(
            message(
                "Histogram: a number of bins has no edges without a range.",
                f"got       bins={bins}, range=None",
                remedy="Pass range=(low, high), which cannot depend on the data, or the edges.",
            )
        )
    return uniform("Histogram", given, *ends_of("Histogram", ends))


@final
@dataclass(frozen=True)
class HistogramMany:
    """Count along the leading axis by bin.

    Attributes:
      grid: the bins.
    """

    grid: Grid

    def __call__(self, xs: Any, weights: Any = None) -> Any:
        """Return totals `(bins + 3, ...)`: underflow, the bins, overflow, NaN."""
        amounts = None
        if weights is not None:
            (amounts,) = weigh(weights)
        return bin_totals(self.grid.places(xs) + 1, self.grid.size + 3, amounts)


def present_histogram(state: Any) -> Any:
    """Present totals by name."""
    return {
        "counts": state[1:-2],
        "underflow": state[0],
        "overflow": state[-2],
        "nan": state[-1],
    }


@final
@dataclass(frozen=True)
class ReferenceHistogram:
    """Count in NumPy.

    Attributes:
      grid: the bins.
    """

    grid: Grid

    def __call__(self, xs: Any, weights: Any = None) -> Any:
        """Return the dictionary that `present_histogram` does."""
        weights = reference_weights(weights, len(xs))
        rows = [self._row(column, weights) for column in columns(xs)]
        stacked = {name: np.stack([row[name] for row in rows], axis=-1) for name in rows[0]}
        return {name: np.reshape(value, value.shape[:-1] + xs.shape[1:]) for name, value in stacked.items()}

    def _row(self, xs: Any, weights: Any) -> Any:
        xs, edges = np.asarray(xs, np.float64), np.asarray(self.grid.edges)
        inside = ~np.isnan(xs)
        return {
            "counts": np.histogram(xs[inside], edges, weights=weights[inside])[0],
            "underflow": weights[xs < edges[0]].sum(),
            "overflow": weights[xs > edges[-1]].sum(),
            "nan": weights[~inside].sum(),
        }
