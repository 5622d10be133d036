"""The aggregator of count, mean, variance, skewness and kurtosis."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregation.inputs import count_inputs, most_inputs
from combinators.aggregators.sums import origin_near, unit_of, weighted_origin
from combinators.aggregators.weights import over, reference_weights, total_weight, weigh
from combinators.arguments import is_whole
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.together import reduce_together
from combinators.monoids.moments import shift_sums
from combinators.numerics.reductions import Reductions


def Moments(order: int = 4) -> Aggregator:
    """Find count, mean, variance, skewness and kurtosis in one fold, and one pass over memory.

        variance = m2 / n,   skewness = (m3 / n) / variance**1.5,   kurtosis = (m4 / n) / variance**2 - 3

    Args:
      order: the highest moment: 2, 3 (with skewness) or 4 (with kurtosis).

    Returns:
      An aggregator of one real input, and optionally of weights, to a dictionary: `count` (an integer; the total where
      weights are floats), `mean`, `variance` (of the population: divided by the count), `skewness` and `kurtosis` (in
      excess of the normal distribution's), floats of at least 32 bits. All but the count of nothing are NaN, with
      gradient 0; so are skewness and kurtosis where the spread is lost in the rounding of the mean, as in SciPy, and
      where the sum of cubes, or of fourth powers, is no ordinary float: of float32 skewness is known for deviations
      from 1e-12 to 1e12, kurtosis from 1e-9 to 1e9. A variance that overflows is infinite, as in NumPy, and so is a
      mean. Integers are rounded to floats first.

      Weights say how often an element counts, booleans whether it does; those at 0 or below leave it out. Counts that
      are integers end at `2**31 - 1` (`2**63 - 1` where x64 is enabled); where one call is given more, its count is
      negative and the rest NaN.

    Raises:
      GraphError: when the order is none of these.

    Source: Chan, Golub, LeVeque 1983, eq. 1.7 and 2.1; Pebay 2008 for the higher orders.
    """
    if not is_whole(order) or order not in (2, 3, 4):
        raise GraphError(message("Moments: unknown order.", "expected  2, 3 or 4", f"got       {order!r}"))
    many = MomentsMany(int(order))
    return Aggregator(
        LiftOne(many),
        monoids.Moments,
        present_moments,
        lift_many=many,
        reference=ReferenceMoments(order),
        name="Moments",
    )


@final
@dataclass(frozen=True)
class MomentsMany:
    """Find the moments along the leading axis: power sums around a number near the mean, moved to the mean.

    Attributes:
      order: the highest moment.
    """

    order: int

    entrywise: ClassVar[bool] = True

    def __call__(self, xs: Any, weights: Any = None) -> Any:
        """Return `(count, mean, m2, ...)` of real elements `(n, ...)`, weighted by `(n,)`."""
        return self.reductions(xs).run(jnp.asarray(xs)) if weights is None else self._weighted(xs, weights)

    def reductions(self, xs: Any) -> Reductions:
        """Sums of powers of deviations from a number near the mean, of elements without weights."""
        xs = real("Moments", xs)
        count, origin, unit = jnp.asarray(xs.shape[0], int), origin_near(xs), unit_of(xs)

        def moved(sums: Sequence[Any]) -> tuple[Any, ...]:
            return self._moved(count, origin, unit, sums)

        return Reductions(("sum",) * self.order, Powers(self.order), moved, (origin, 1 / unit))

    def _weighted(self, xs: Any, weights: Any) -> tuple[Any, ...]:
        weights, xs = weigh(weights, real("Moments", xs))
        count, weights = total_weight(weights), over(weights, xs).astype(xs.dtype)
        origin, unit = weighted_origin(weights, xs, count), unit_of(xs)
        powers = Powers(self.order)(xs, origin, 1 / unit, weights)
        return self._moved(count, origin, unit, reduce_together(("sum",) * self.order, *powers))

    def _moved(self, count: Any, origin: Any, unit: Any, sums: Sequence[Any]) -> tuple[Any, ...]:
        """The state, from the count and sums of powers of deviations from the origin in a unit."""
        first, *rest = sums
        step = first / _divisor(count, first)
        moved = shift_sums([count.astype(first.dtype), first, *rest], -step)[2:]
        # Constant data can round to a tiny negative sum. Unlike a maximum, a comparison keeps the gradient whole.
        even = [jnp.where(m < 0, 0, m) if p % 2 == 0 else m for p, m in enumerate(moved, start=2)]
        # One unit after the other, so that what overflows is infinite and nothing in between is.
        whole = [reduce(operator.mul, [unit] * p, m) for p, m in enumerate(even, start=2)]
        return (count, moved_mean(origin, step * unit), *whole)


@final
@dataclass(frozen=True)
class Powers:
    """Powers of deviations from an origin, entry by entry.

    Attributes:
      order: the highest power.
    """

    order: int

    def __call__(self, xs: Any, origin: Any, scale: Any, weights: Any = None) -> list[Any]:
        """Return the deviations, times a scale, their squares and so on, each times its weight."""
        # Scaled first, by a power of two: the difference of two floats may overflow.
        deviations = real("Moments", xs) * scale - origin * scale
        powers = [deviations if weights is None else weights * deviations]
        for _ in range(1, self.order):
            powers.append(powers[-1] * deviations)
        return powers


@final
@dataclass(frozen=True)
class LiftOne:
    """Lift one element as the only one of many.

    Attributes:
      many: an aggregator's `lift_many`.
    """

    many: Any

    @property
    def inputs(self) -> int | None:
        """How many inputs it needs; None where that is not known."""
        return count_inputs(self.many)

    @property
    def most_inputs(self) -> int | None:
        """How many inputs it can take; None where that is not known."""
        return most_inputs(self.many)

    def __call__(self, *xs: Any) -> Any:
        """Return the state of one element, given as one cell an input."""
        return self.many(*(jnp.asarray(x)[None] for x in xs))


def present_moments(state: Any) -> Any:
    """Present moments by name.

    Args:
      state: `(count, mean, m2, ...)`.

    Returns:
      A dictionary of count, mean, population variance and, as far as the state knows, skewness and kurtosis.
    """
    count, mean, *sums = state
    nothing = count <= 0
    central = [m / _divisor(count, m) for m in sums]
    variance = central[0]
    result = {"count": count, "mean": jnp.where(nothing, jnp.nan, mean)}
    result["variance"] = jnp.where(nothing, jnp.nan, variance)
    if len(central) > 1:
        unit, is_known = _unit(result["variance"], mean, central[1], 1.5)
        result["skewness"] = jnp.where(is_known, central[1] / (unit * jnp.sqrt(unit)), jnp.nan)
    if len(central) > 2:
        unit, is_known = _unit(result["variance"], mean, central[2], 2)
        result["kurtosis"] = jnp.where(is_known, central[2] / (unit * unit) - 3, jnp.nan)
    return result


def _unit(variance: Any, mean: Any, moment: Any, power: float) -> tuple[Any, Any]:
    """The variance, or 1 where its power, and the moment that this divides, are no ordinary floats; and whether not."""
    limits = jnp.finfo(variance.dtype)
    ends = (float(end) ** (1 / power) for end in (limits.tiny, limits.max))
    least, greatest = (jnp.asarray(end, variance.dtype) for end in ends)
    is_known = (variance > (float(limits.resolution) * mean) ** 2) & (variance >= least) & (variance < greatest)
    is_known = is_known & jnp.isfinite(moment)
    return jnp.where(is_known, variance, 1), is_known


@final
@dataclass(frozen=True)
class ReferenceMoments:
    """Find the moments in NumPy, in float64.

    Attributes:
      order: the highest moment.
    """

    order: int

    def __call__(self, xs: Any, weights: Any = None) -> Any:
        """Return the dictionary that `present_moments` does."""
        # What counts as spread is a matter of the precision that the data came in.
        limits = np.finfo(np.float64 if xs.dtype == np.float64 else np.float32)
        weights = reference_weights(weights, len(xs))
        kept, count = weights > 0, np.asarray(weights.sum())
        nothing = np.full(xs.shape[1:], np.nan)
        names = ("variance", "skewness", "kurtosis")[: self.order - 1]
        if not kept.any():
            return {"count": count, "mean": nothing} | dict.fromkeys(names, nothing)
        xs, weights = np.asarray(xs[kept], np.float64), np.asarray(weights[kept], np.float64)
        mean = np.average(xs, axis=0, weights=weights)
        second, third, fourth = (np.average((xs - mean) ** p, axis=0, weights=weights) for p in (2, 3, 4))
        with np.errstate(all="ignore"):
            # What has no place among the floats of the data is infinite, or not known.
            variance = np.where(second * count > limits.max, np.inf, second)
            skewness, kurtosis = (
                np.where(
                    (second > (limits.resolution * mean) ** 2)
                    & (second**power >= limits.tiny)
                    & (second**power < limits.max)
                    & (np.abs(moment) * count < limits.max),
                    moment / second**power,
                    np.nan,
                )
                for moment, power in ((third, 1.5), (fourth, 2))
            )
            values = (variance, skewness, kurtosis - 3)
        return {"count": count, "mean": mean} | dict(zip(names, values, strict=False))


def real(where: str, xs: Any) -> Any:
    """Give real elements as floats of at least 32 bits.

    Raises:
      GraphError: when they are complex.
    """
    xs = jnp.asarray(xs)
    if jnp.issubdtype(xs.dtype, jnp.complexfloating):
        raise GraphError(
            message(
                f"{where}: the input is complex.",
                "expected  integers, booleans or real floats",
                f"got       {xs.dtype}",
                remedy="Aggregate real and imaginary parts on their own.",
            )
        )
    return xs.astype(jnp.promote_types(xs.dtype, jnp.float32))


def _divisor(count: Any, like: Any) -> Any:
    return jnp.where(count == 0, 1, count).astype(like.dtype)


def moved_mean(origin: Any, step: Any) -> Any:
    """Correct an origin; where it is infinite or NaN it is the mean already, and no correction is a number."""
    return origin + jnp.where(jnp.isfinite(origin), step, 0)
