"""Grids of bins, and totals by bin: what histograms and all metrics that sort values into bins are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.arguments import is_real, is_whole, read_list
from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.kernels.fingerprint import is_traced

COMPARED = 512
"""Edges up to which every value is compared with every edge, instead of being searched for."""


@final
@dataclass(frozen=True)
class Grid:
    """Bins between increasing edges, `[a, b)` each, but the last one `[a, b]`, as in NumPy. Subnormal numbers may be 0.

    Attributes:
      edges: at least two.
      is_uniform: whether the bins are of one width.
    """

    edges: tuple[float, ...]
    is_uniform: bool

    @property
    def size(self) -> int:
        """How many bins there are."""
        return len(self.edges) - 1

    def places(self, xs: Any) -> Any:
        """Find the bins of values.

        A uniform grid finds a bin by one multiplication, and corrects it by the edge above; so that a value at an edge
        falls on the side that the edges say, however the multiplication rounded. Where the edges are multiples of a
        width that is a power of 2 there is nothing to correct.

        Args:
          xs: integers or real floats, of any shape.

        Returns:
          int32 of the same shape: 0 to `size - 1`; -1 below the first edge, `size` above the last, `size + 1` for NaN.
        """
        xs = jnp.asarray(xs)
        if not jnp.issubdtype(xs.dtype, jnp.floating):
            # Half of the unsigned integers have no place among the signed ones of 32 bits.
            is_wide = jnp.issubdtype(xs.dtype, jnp.unsignedinteger) and xs.dtype.itemsize >= 4
            xs = xs if is_wide else xs.astype(int)
        elif xs.dtype.itemsize < 4:
            xs = xs.astype(jnp.float32)
        ends = _above(self.edges[0], xs.dtype), _below(self.edges[-1], xs.dtype)
        first, last = (np.asarray(end, xs.dtype) for end in ends)
        bins = self._between(xs)
        bins = jnp.where(xs < first, -1, jnp.where(xs > last, self.size, bins))
        return jnp.where(xs != xs, self.size + 1, bins).astype(jnp.int32)

    def _between(self, xs: Any) -> Any:
        """The bins of values between the ends."""
        edges = self._edges_in(xs.dtype)
        if not self._is_graded(xs.dtype):
            bins = _search(jnp.asarray(edges), xs)
        elif self._is_exact(edges):
            return self._multiples(xs, jnp)
        else:
            bins = self._corrected(xs, jnp.asarray(edges))
        return jnp.where(xs >= edges[-1], self.size - 1, bins)

    def _corrected(self, xs: Any, edges: Any) -> Any:
        low, high = self.edges[0], self.edges[-1]
        kind = jnp.promote_types(xs.dtype, jnp.float32)
        scaled = (xs.astype(kind) - low) * (self.size / (high - low))
        # A quarter of a bin less is at most one bin too low, and never too high. NaN has no place among the bins; a
        # place that it is moved from later must all the same be one.
        guess = jnp.clip(jnp.nan_to_num(scaled) - 0.25, 0, self.size - 1).astype(jnp.int32)
        return guess + (xs >= edges[guess + 1])

    def _multiples(self, xs: Any, numpy: Any) -> Any:
        """The bins where edges are multiples of the width; of NaN any number."""
        low, high = self.edges[0], self.edges[-1]
        kind = jnp.promote_types(xs.dtype, jnp.float32)
        scale = self.size / (high - low)
        steps = numpy.floor(xs.astype(kind) * np.asarray(scale, kind)) - np.asarray(round(low * scale), kind)
        return numpy.clip(steps, 0, self.size - 1).astype(np.int32)

    def _is_exact(self, edges: Any) -> bool:
        """Whether multiples of the width give the bin of every value.

        What they give never decreases with the value, so that it is right where it is at every edge and right below.
        """
        inner, bins = edges[1:-1], np.arange(1, self.size)
        below = np.nextafter(inner, np.asarray(-np.inf, edges.dtype)) if _is_float(edges.dtype) else inner - 1
        found = (self._multiples(values, np) for values in (inner, below))
        return all(np.array_equal(a, b) for a, b in zip(found, (bins, bins - 1), strict=True))

    def _is_graded(self, dtype: Any) -> bool:
        """Whether one multiplication finds a bin up to one beside it: not where the offset swallows the width."""
        low, high = self.edges[0], self.edges[-1]
        unit = float(jnp.finfo(jnp.promote_types(dtype, jnp.float32)).eps)
        return self.is_uniform and self.size * unit * max(abs(low), abs(high)) < 0.1 * (high - low)

    def _edges_in(self, dtype: Any) -> Any:
        """The edges in a dtype, rounded so that `x >= edge` holds for the same values of this dtype."""
        return np.asarray([_above(edge, dtype) for edge in self.edges], dtype)


def uniform(where: str, bins: int, low: float, high: float) -> Grid:
    """Make a grid of bins of one width.

    Raises:
      GraphError: when there is no bin, or no finite width.
    """
    # More bins than that are a mistake, and would be made at once.
    whole = is_whole(bins) and 0 < bins <= 2**26
    if not whole or not (is_real(low) and is_real(high) and math.isfinite(low) and math.isfinite(high) and low < high):
        raise GraphError(
            message(
                f"{where}: there is no grid of these bins.",
                "expected  a positive number of bins, at most 2**26, and finite low < high",
                f"got       {bins!r} bins from {low!r} to {high!r}",
                remedy="Pass bins=256, range=(0.0, 1.0), or the edges themselves.",
            )
        )
    return Grid(tuple(map(float, np.linspace(low, high, bins + 1))), True)


def ends_of(where: str, ends: Any) -> tuple[Any, Any]:
    """Read the two outer edges of a grid.

    Raises:
      GraphError: when there are not two.
    """
    pair = read_list(ends, f"range= of {where}")
    if len(pair) != 2:
        got = f"got       {len(pair)}: {spelt(ends, 60)}"
        raise GraphError(message(f"{where}: a range has two ends.", got, remedy="Pass range=(0.0, 1.0)."))
    return pair[0], pair[1]


def between(where: str, edges: Sequence[float]) -> Grid:
    """Make a grid of bins between given edges.

    Raises:
      GraphError: when they are fewer than two, not finite, or do not increase.
    """
    is_array = isinstance(edges, jax.Array) and not is_traced(edges)
    edges = np.asarray(edges).tolist() if is_array else edges
    given: Any = list(edges) if isinstance(cast("Any", edges), Iterable) and not isinstance(edges, dict) else []
    listed = tuple(map(float, given)) if all(map(is_real, given)) else ()
    if len(listed) < 2 or not all(map(math.isfinite, listed)) or not all(np.diff(listed) > 0):
        raise GraphError(
            message(
                f"{where}: these are no edges of bins.",
                "expected  two or more finite numbers that increase",
                f"got       {spelt(listed)}",
                remedy="Sort the edges and drop those that occur twice.",
            )
        )
    return Grid(listed, False)


def bin_totals(places: Any, size: int, amounts: Any = None) -> Any:
    """Add up amounts by bin: one scatter.

    Args:
      places: int32 `(n, ...)`; what is outside of 0 to `size - 1` is dropped.
      size: how many bins there are.
      amounts: `(n,)` or `(n, ...)`, integers or floats; 1 each by default, counted as int32 (int64 where x64 is
        enabled). Floats are added in two levels, so that the rounding error grows with the root of `n`.

    Returns:
      Shape `(size, ...)`.
    """
    count, cell = places.shape[0], places.shape[1:]
    width = math.prod(cell) * size
    amounts = jnp.ones(count, int) if amounts is None else amounts
    spread = jnp.reshape(amounts, amounts.shape + (1,) * (places.ndim - amounts.ndim))
    spread = jnp.broadcast_to(spread, places.shape)
    rows = _rows(count, width) if _is_float(amounts.dtype) else 1
    flat = places
    if cell:
        flat = flat + jnp.arange(math.prod(cell), dtype=jnp.int32).reshape(cell) * size
    if rows > 1:
        row = jnp.arange(count, dtype=jnp.int32) // max(-(-count // rows), 1)
        flat = flat + (row * width).reshape(-1, *(1,) * len(cell))
    flat = jnp.where((places >= 0) & (places < size), flat, rows * width)
    totals = jnp.zeros(rows * width, amounts.dtype).at[flat.ravel()].add(spread.ravel(), mode="drop")
    return jnp.moveaxis(jnp.sum(totals.reshape(rows, *cell, size), axis=0, dtype=amounts.dtype), -1, 0)


def columns(xs: Any) -> Any:
    """The entries of cells one by one, in NumPy: `(n, ...)` to `(entries, n)`."""
    return np.reshape(xs, (len(xs), math.prod(xs.shape[1:]))).T


def _rows(count: int, width: int) -> int:
    """How many partial totals floats are added to first: few enough to stay in a cache."""
    return max(1, min(math.isqrt(count) // 16, 65_536 // max(width, 1)))


def _search(edges: Any, xs: Any) -> Any:
    method = "compare_all" if edges.shape[0] <= COMPARED else "scan"
    return jnp.searchsorted(edges, xs, side="right", method=method) - 1


def _is_float(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


def _above(edge: float, dtype: Any) -> Any:
    """The least value of a dtype that is not below an edge."""
    if not jnp.issubdtype(dtype, jnp.floating):
        info = jnp.iinfo(dtype)
        return min(max(math.ceil(edge), int(info.min)), int(info.max))
    value = np.asarray(edge, dtype)
    return value if float(value) >= edge else np.nextafter(value, np.asarray(np.inf, dtype))


def _below(edge: float, dtype: Any) -> Any:
    """The greatest value of a dtype that is not above an edge."""
    if not jnp.issubdtype(dtype, jnp.floating):
        info = jnp.iinfo(dtype)
        return min(max(math.floor(edge), int(info.min)), int(info.max))
    value = np.asarray(edge, dtype)
    return value if float(value) <= edge else np.nextafter(value, np.asarray(-np.inf, dtype))
