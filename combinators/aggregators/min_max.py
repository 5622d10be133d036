"""The aggregator of the least and the greatest element."""

from __future__ import annotations

from typing import Any

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.elementwise import ExtremeMany, reference_max, reference_min
from combinators.aggregators.moments import LiftOne
from combinators.numerics.reductions import ForkMany

_BOTH = ForkMany((ExtremeMany("min"), ExtremeMany("max")))


def MinMax() -> Aggregator:
    """Find the least and the greatest element.

    Returns:
      An aggregator of one input to a dictionary of `min` and `max`. NaN wins in both; of nothing they are the greatest
      and the least value of the dtype.
    """
    return Aggregator(
        LiftOne(_BOTH),
        monoids.MinMax,
        present_min_max,
        lift_many=_BOTH,
        reference=reference_min_max,
        name="MinMax",
    )


def present_min_max(state: Any) -> Any:
    """Present both ends by name."""
    least, greatest = state
    return {"min": least, "max": greatest}


def reference_min_max(xs: Any) -> Any:
    """Find least and greatest in NumPy."""
    return {"min": reference_min(xs), "max": reference_max(xs)}
