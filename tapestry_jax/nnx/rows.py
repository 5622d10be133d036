"""Kernels that pick rows by number, where the rows may be cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.kernels.coordinates import Searching
from combinators.merging.monoid import Monoid
from combinators.monoids import Sum
from combinators.numerics.locating import locate, place_after


def wide(numbers: Any) -> Any:
    """Integers of 32 bits at least: a byte names each row of a table of 256, and cannot be compared with 256."""
    return numbers if numbers.dtype.itemsize >= 4 else numbers.astype(jnp.int32)


def wrapped(numbers: Any, size: int) -> Any:
    """Count negative numbers from the end, as Python does."""
    numbers = wide(numbers)
    return jnp.where(numbers < 0, numbers + size, numbers)


Locate = Callable[[Any, Any], tuple[Any, Any]]


def _rows(size: int, numbers: Any, table: Any, at: Any, find: Locate) -> Any:
    cell = (..., *(None,) * (table.ndim - 1))
    wanted = wrapped(numbers, size)
    # Added, not chosen: the derivative of a sum is no pass over the rows.
    outside = jnp.where((wanted < 0) | (wanted >= size), jnp.asarray(jnp.nan, table.dtype), 0)[cell]
    if not at.shape[0]:
        return jnp.broadcast_to(outside, (*numbers.shape, *table.shape[1:])).astype(table.dtype)
    place, found = find(wanted, at)
    # What is absent stands behind the last row: it is read as zeros, and its gradient dropped where it is gathered.
    place = jnp.where(found, place, at.shape[0])
    return jnp.take(table, place, axis=0, mode="fill", fill_value=0) + outside


def _entries(size: int, scores: Any, numbers: Any, at: Any, find: Locate) -> Any:
    wanted = wide(numbers)
    outside = jnp.where((wanted < 0) | (wanted >= size), jnp.asarray(jnp.nan, scores.dtype), 0)
    if not at.shape[0]:
        return outside.astype(scores.dtype)
    place, found = find(wanted, at)
    place = jnp.where(found, place, at.shape[0])[..., None]
    return jnp.take_along_axis(scores, place, axis=-1, mode="fill", fill_value=0)[..., 0] + outside


@dataclass(frozen=True)
class RowsOfBlock(Searching):
    """The rows of those numbers that lie in a block of a table, and zeros for the others; their sum is the lookup.

    Attributes:
      size: rows of the whole table; numbers outside it give NaN, as they do uncut.
    """

    size: int
    merged_by: ClassVar[tuple[Monoid, ...]] = (Sum,)

    def __call__(self, numbers: Any, table: Any, at: Any) -> Any:
        """Shape `(*numbers, *cell of the table)`."""
        return _rows(self.size, numbers, table, at, locate)

    @property
    def looked_up(self) -> tuple[int, range]:
        """Which operand holds the numbers, and for which of them there are rows."""
        return 0, range(-self.size, self.size)

    @property
    def consecutive(self) -> Callable[..., Any]:
        """The rows without a search."""
        return partial(_rows, self.size, find=place_after)


@dataclass(frozen=True)
class Rows:
    """The rows of a whole table."""

    def __call__(self, numbers: Any, table: Any, at: Any = None) -> Any:
        """Shape `(*numbers, *cell of the table)`."""
        del at
        return jnp.take(table, wide(numbers), axis=0)


@dataclass(frozen=True)
class RowsWithin:
    """The rows of a whole table for numbers that it has, such as coordinates: nothing is looked for outside."""

    def __call__(self, numbers: Any, table: Any) -> Any:
        """Shape `(*numbers, *cell of the table)`."""
        return jnp.take(table, numbers, axis=0, mode="clip")


@dataclass(frozen=True)
class EntryOfBlock(Searching):
    """The entry with the wanted number along the last axis, where it lies in the block; otherwise zero.

    Attributes:
      size: of the whole axis; numbers outside it, negative ones too, give NaN, as they do uncut.
    """

    size: int
    merged_by: ClassVar[tuple[Monoid, ...]] = (Sum,)

    def __call__(self, scores: Any, numbers: Any, at: Any) -> Any:
        """The shape of `numbers`."""
        return _entries(self.size, scores, numbers, at, locate)

    @property
    def looked_up(self) -> tuple[int, range]:
        """Which operand holds the numbers, and for which of them there are entries."""
        return 1, range(self.size)

    @property
    def consecutive(self) -> Callable[..., Any]:
        """The entry without a search."""
        return partial(_entries, self.size, find=place_after)


@dataclass(frozen=True)
class Entry:
    """The entry with the wanted number along the whole last axis; NaN for numbers outside it, negative ones too."""

    def __call__(self, scores: Any, numbers: Any, at: Any = None) -> Any:
        """The shape of `numbers`."""
        del at
        # As `jnp.take_along_axis` does it, but that a target which says "none", such as -1, counts from no end. For its
        # shapes, a dimension more than are needed, XLA for TPUs makes the derivative without an array of scores.
        rows = tuple(range(numbers.ndim))
        taken = lax.GatherDimensionNumbers((), (numbers.ndim,), (numbers.ndim,), rows, rows)
        sizes, mode = (1,) * scores.ndim, lax.GatherScatterMode.FILL_OR_DROP
        return lax.gather(scores, wide(numbers)[..., None, None], taken, sizes, mode=mode)[..., 0]
