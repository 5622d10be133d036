"""Metrics of several steps: folds over the rows that they speak of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.nnx.training.stepping.step import FAULT


@dataclass(frozen=True)
class Metrics:
    """Totals and counts of metrics, which add up over batches of any sizes.

    A scalar is the mean of a batch, and counts its rows; a pair is a total and its count. So what is read at the end is
    that of all rows together, whatever the sizes of the batches were.

    Attributes:
      totals: by name.
      counts: by name.
    """

    totals: Mapping[str, float]
    counts: Mapping[str, float]

    @staticmethod
    def of(found: Mapping[str, Any], rows: int) -> Metrics:
        """Those of one batch.

        Args:
          found: what a step returns; of a step that was left out nothing counts but that it was.
          rows: of the batch.
        """
        pairs = {name: _pair(value, rows) for name, value in found.items() if name != FAULT}
        if found.get("skipped", False):
            pairs = {name: pair if name == "skipped" else (0.0, 0.0) for name, pair in pairs.items()}
        return Metrics({name: a for name, (a, _) in pairs.items()}, {name: b for name, (_, b) in pairs.items()})

    def __add__(self, other: Metrics) -> Metrics:
        """Those of both."""
        return Metrics(_sum(self.totals, other.totals), _sum(self.counts, other.counts))

    def read(self) -> dict[str, float]:
        """The means, NaN where nothing counts; of `skipped` the share of the rows that were."""
        return {name: total / self.counts[name] if self.counts[name] else np.nan for name, total in self.totals.items()}


NOTHING = Metrics({}, {})


def _pair(value: Any, rows: int) -> tuple[float, float]:
    if isinstance(value, tuple):
        total, count = value  # pyright: ignore[reportUnknownVariableType]
        return float(total), float(count)
    # The mean of no row is NaN, and counts nothing.
    return (float(value) * rows, float(rows)) if rows else (0.0, 0.0)


def _sum(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in [*a, *(each for each in b if each not in a)]}
