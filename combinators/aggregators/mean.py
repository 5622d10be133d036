"""Aggregators that count and average."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.elementwise import SumMany, present_state
from combinators.aggregators.totals import integer_total, settled, total, total_of_products
from combinators.aggregators.weights import over, reference_weights, weigh
from combinators.frozen import dataclass
from combinators.numerics.reductions import Reductions, wider


def Count() -> Aggregator:
    """Count the elements.

    Returns:
      An aggregator of one input, and optionally of weights, to a scalar integer (int32; int64 where x64 is enabled), or
      to the total of weights that are floats. Booleans are a mask; weights of 0 or below do not count. NaN counts.
      Integers wrap around, as those of `jnp.sum` do: past `2**31 - 1` enable x64, or pass floats as weights.
    """
    return Aggregator(
        lift_count, monoids.Sum, present_state, lift_many=count_many, reference=reference_count, name="Count"
    )


def Mean() -> Aggregator:
    """Average the elements.

    Integers, and integer weights, are totalled exactly as integers, however large the total: beside the sum that may
    wrap around stands one of floats. Half-precision floats are totalled in float32. The state is a plain sum, so one
    native collective folds it; where the values are far from zero, `Moments` is more accurate.

    Returns:
      An aggregator of one input, and optionally of weights as in `Count`, to a float; the mean of nothing is NaN, with
      gradient 0. Floats whose total overflows have an infinite mean, as in NumPy. Without weights there may be as many
      elements as an integer counts: up to `2**31 - 1`, or `2**63 - 1` where x64 is enabled.
    """
    return Aggregator(
        lift_mean, monoids.Mean, present_mean, lift_many=MeanMany(), reference=reference_mean, name="Mean"
    )


def count_many(xs: Any, weights: Any = None) -> Any:
    """Count along the leading axis."""
    if weights is None:
        return jnp.asarray(xs.shape[0], int)
    return jnp.sum(weigh(weights)[0], axis=0)


def lift_count(x: Any, weight: Any = None) -> Any:
    """Count one element."""
    return count_many(*(jnp.asarray(part)[None] for part in (x, weight) if part is not None))


def reference_count(xs: Any, weights: Any = None) -> Any:
    """Count in NumPy."""
    return np.asarray(reference_weights(weights, len(xs)).sum())


@final
@dataclass(frozen=True)
class MeanMany:
    """Total and count along the leading axis."""

    entrywise: ClassVar[bool] = True

    def __call__(self, xs: Any, weights: Any = None) -> Any:
        """Return `(total, count)` of elements `(n, ...)`, weighted by `(n,)`; what may overflow as a pair of totals."""
        if weights is None:
            return self.reductions(xs).run(jnp.asarray(xs))
        weights, xs = weigh(weights, _wide(xs))
        return total_of_products(over(weights, xs), xs), total(weights)

    def reductions(self, xs: Any) -> Reductions:
        """The total, of elements without weights."""
        xs = _wide(xs)
        # Of booleans it is at most the count.
        found = integer_total(xs) if jnp.issubdtype(xs.dtype, jnp.integer) else SumMany().reductions(xs)
        return replace(found, finish=lambda totals: (found.finish(totals), count_many(xs)))


def lift_mean(x: Any, weight: Any = None) -> Any:
    """Total and count one element."""
    return MeanMany()(*(jnp.asarray(part)[None] for part in (x, weight) if part is not None))


def present_mean(state: Any) -> Any:
    """Divide a total by its count."""
    total, count = map(settled, state)
    count = over(count, total)
    return jnp.where(count == 0, jnp.nan, total / jnp.where(count == 0, 1, count))


def _wide(xs: Any) -> Any:
    xs = jnp.asarray(xs)
    return wider(xs, jnp.promote_types(xs.dtype, jnp.float32)) if jnp.issubdtype(xs.dtype, jnp.floating) else xs


def reference_mean(xs: Any, weights: Any = None) -> Any:
    """Average in NumPy, in float64."""
    wide = np.asarray(xs, np.complex128 if np.iscomplexobj(xs) else np.float64)
    weights = reference_weights(weights, len(xs))
    kept = weights > 0
    if not kept.any():
        return np.full(xs.shape[1:], np.nan)
    return np.average(wide[kept], axis=0, weights=weights[kept])
