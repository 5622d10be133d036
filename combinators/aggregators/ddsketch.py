"""DDSketch: quantiles with a relative error that is known beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, cast, final

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.entries import each_entry, each_entry_on_host
from combinators.arguments import is_real, read_number
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.pieces import InPieces

MANTISSA = 23


def DDSketch(
    quantiles: Sequence[float] = (0.5, 0.9, 0.99),
    *,
    accuracy: float = 0.01,
    smallest: float = 1e-6,
    largest: float = 1e6,
) -> Aggregator:
    """Find quantiles of numbers of many magnitudes.

    Elements are counted in bins whose ends are in a fixed ratio at most: an octave is cut in `2**b` equal parts, which
    are read off the bits of a float, so that a value falls to the same bin on every device. Counts add, so any order
    and any cut give the same bits, and a mesh folds them natively.

        |estimate - x_q| <= accuracy |x_q|   for smallest <= |x_q| <= largest

    with `x_q` the element of rank `floor(q (n - 1))` in ascending order. Elements nearer to 0 than `smallest` count as
    0, those beyond `largest` fall to the last bin. NaN is left out.

    Args:
      quantiles: from 0 to 1.
      accuracy: the relative error, above 0 and below 1/3.
      smallest: magnitude, at least 2**-126.
      largest: magnitude.

    Returns:
      An aggregator of one real input to a dictionary: `count` (int32) and `quantile` (float32, one a quantile; NaN for
      nothing). Elements are rounded to float32. The state is int32, about `2 * 2**b` bins an octave; by default 5,200.

    Raises:
      GraphError: when an argument is out of range.

    Source: Masson, Rim, Lee 2019, DDSketch, section 2; the linear interpolation between powers of two is that of its
      authors' implementations.
    """
    accuracy = read_number(accuracy, "accuracy= of DDSketch")
    smallest, largest = read_number(smallest, "smallest= of DDSketch"), read_number(largest, "largest= of DDSketch")
    listed: Any = list(quantiles) if isinstance(cast("Any", quantiles), Iterable) else []
    given = tuple(float(q) for q in listed) if all(map(is_real, listed)) else ()
    problems: list[str] = []
    if not given or not all(0 <= q <= 1 for q in given):
        problems.append(f"quantiles is {quantiles!r}, expected one number or more from 0 to 1")
    if not 0 < accuracy < 1 / 3:
        problems.append(f"accuracy is {accuracy!r}, expected a number above 0 and below 1/3")
    if not 2.0**-126 <= smallest < largest < 2.0**127:
        problems.append(f"the magnitudes are {smallest!r} and {largest!r}, expected normal float32 in ascending order")
    if problems:
        raise GraphError(message("DDSketch: cannot be built.", *problems, remedy="Pass what is expected."))
    bins = Bins(max(0, math.ceil(math.log2((1 / accuracy - 1) / 2))), float(smallest), float(largest))
    return Aggregator(
        BinOfOne(bins),
        monoids.Sum,
        Quantiles(bins, given),
        lift_many=InPieces(bins, monoids.Sum),
        reference=QuantilesReference(bins, given),
        name="DDSketch",
    )


@final
@dataclass(frozen=True)
class Bins:
    """Counts of all elements along the leading axis.

    The state is `[negative, descending magnitude | zero | positive, ascending magnitude | NaN]`.
    """

    bits: int
    smallest: float
    largest: float

    @cached_property
    def first(self) -> int:
        """The first bin of a positive number: the leading bits of `smallest`."""
        return int(np.float32(self.smallest).view(np.int32)) >> (MANTISSA - self.bits)

    @cached_property
    def count(self) -> int:
        """The number of bins of one sign."""
        return (int(np.float32(self.largest).view(np.int32)) >> (MANTISSA - self.bits)) - self.first + 1

    @property
    def size(self) -> int:
        """The length of the state."""
        return 2 * self.count + 2

    @property
    def edges(self) -> Any:
        """The ends of the positive bins: float64 `(count + 1,)`."""
        at = self.first + np.arange(self.count + 1)
        exponent, part = at >> self.bits, at & (2**self.bits - 1)
        return 2.0 ** (exponent - 127) * (1 + part / 2**self.bits)

    @property
    def values(self) -> Any:
        """What stands for every bin: float32; the relative distance to both of its ends is the same."""
        low, high = self.edges[:-1], self.edges[1:]
        middle = 2 * low * high / (low + high)
        return np.concatenate([-middle[::-1], [0.0], middle]).astype(np.float32)

    def __call__(self, xs: Any) -> Any:
        """Return int32 `(size, *cell)`."""
        return each_entry(self._row, self.places(xs))

    def places(self, x: Any) -> Any:
        """The position in the state of every entry: int32."""
        x = jnp.asarray(x).astype(jnp.float32)
        bits = lax.bitcast_convert_type(jnp.abs(x), jnp.int32)
        magnitude = jnp.minimum((bits >> (MANTISSA - self.bits)) - self.first, self.count - 1) + 1
        magnitude = jnp.where(jnp.abs(x) < np.float32(self.smallest), 0, magnitude)
        signed = self.count + jnp.where(x < 0, -magnitude, magnitude)
        return jnp.where(jnp.isnan(x), self.size - 1, signed)

    def _row(self, places: Any) -> Any:
        return jnp.zeros(self.size, jnp.int32).at[places].add(1)


@final
@dataclass(frozen=True)
class BinOfOne:
    """Counts of one element."""

    bins: Bins

    def __call__(self, x: Any) -> Any:
        """Return int32 `(size, *cell)`."""
        places = self.bins.places(x)
        return (jnp.arange(self.bins.size).reshape(-1, *(1,) * places.ndim) == places).astype(jnp.int32)


@final
@dataclass(frozen=True)
class Quantiles:
    """Present counts as quantiles."""

    bins: Bins
    quantiles: tuple[float, ...]

    def __call__(self, state: Any) -> Any:
        """Return count and quantiles by name."""
        until = jnp.cumsum(state[:-1], axis=0)
        count = until[-1]
        found = [self._at(until, count, np.float32(q)) for q in self.quantiles]
        return {"count": count, "quantile": jnp.where(count == 0, jnp.nan, jnp.stack(found))}

    def _at(self, until: Any, count: Any, quantile: Any) -> Any:
        rank = jnp.floor(quantile * (count - 1).astype(jnp.float32)).astype(count.dtype)
        return jnp.asarray(self.bins.values)[jnp.argmax(until > rank, axis=0)]


@final
@dataclass(frozen=True)
class QuantilesReference:
    """The same quantiles in NumPy: every element is rounded to its bin, found by bisection, and sorted."""

    bins: Bins
    quantiles: tuple[float, ...]

    def __call__(self, xs: Any) -> Any:
        """Return count and quantiles by name."""
        xs = np.asarray(xs).astype(np.float32)
        quantile = each_entry_on_host(self._row, xs)
        return {"count": np.sum(~np.isnan(xs), axis=0, dtype=np.int32), "quantile": quantile}

    def _row(self, xs: Any) -> Any:
        xs = xs[~np.isnan(xs)]
        if not len(xs):
            return np.full(len(self.quantiles), np.nan, np.float32)
        edges, values = self.bins.edges, self.bins.values[self.bins.count + 1 :]
        at = np.minimum(np.searchsorted(edges, np.abs(xs), side="right") - 1, self.bins.count - 1)
        rounded = np.sort(np.where(np.abs(xs) < np.float32(self.bins.smallest), 0, np.sign(xs) * values[at]))
        ranks = [int(np.floor(np.float32(q) * np.float32(len(xs) - 1))) for q in self.quantiles]
        return rounded[ranks].astype(np.float32)
