"""Kernels that pick rows by number, where the rows may be cut."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass


def locate(wanted: Any, at: Any) -> tuple[Any, Any]:
    """Find numbers in a block's coordinates.

    Args:
      wanted: integers, any shape.
      at: int32 `(n,)`, ascending, with gaps allowed, `n > 0`.

    Returns:
      For each number its position in `at` (any valid one where it is absent), and whether it is there.
    """
    place = jnp.zeros_like(wanted)
    # A binary search, unrolled: it needs no loop inside the loops and shard_maps that a plan makes around it.
    for bit in reversed(range((at.shape[0] - 1).bit_length())):
        probe = place + 2**bit
        within = jnp.minimum(probe, at.shape[0] - 1)
        place = jnp.where((probe == within) & (at[within] <= wanted), probe, place)
    return place, at[place] == wanted


def wrapped(numbers: Any, size: int) -> Any:
    """Count negative numbers from the end, as Python does."""
    return jnp.where(numbers < 0, numbers + size, numbers)


@dataclass(frozen=True)
class RowsOfBlock:
    """The rows of those numbers that lie in a block of a table, and zeros for the others; their sum is the lookup.

    Attributes:
      size: rows of the whole table; numbers outside it give NaN, as they do uncut.
    """

    size: int

    def __call__(self, numbers: Any, table: Any, at: Any) -> Any:
        """Shape `(*numbers, *cell of the table)`."""
        wide = (..., *(None,) * (table.ndim - 1))
        wanted = wrapped(numbers, self.size)
        nothing = jnp.zeros((*numbers.shape, *table.shape[1:]), table.dtype)
        outside = (wanted < 0) | (wanted >= self.size)
        if at.shape[0]:
            place, found = locate(wanted, at)
            nothing = jnp.where(found[wide], jnp.take(table, place, axis=0, mode="clip"), nothing)
        return jnp.where(outside[wide], jnp.asarray(jnp.nan, table.dtype), nothing)


@dataclass(frozen=True)
class Rows:
    """The rows of a whole table."""

    def __call__(self, numbers: Any, table: Any, at: Any = None) -> Any:
        """Shape `(*numbers, *cell of the table)`."""
        del at
        return jnp.take(table, numbers, axis=0)


@dataclass(frozen=True)
class EntryOfBlock:
    """The entry with the wanted number along the last axis, where it lies in the block; otherwise zero.

    Attributes:
      size: of the whole axis; numbers outside it give NaN, as they do uncut.
    """

    size: int

    def __call__(self, scores: Any, numbers: Any, at: Any) -> Any:
        """The shape of `numbers`."""
        wanted = wrapped(numbers, self.size)
        entry = jnp.zeros(numbers.shape, scores.dtype)
        if at.shape[0]:
            place, found = locate(wanted, at)
            taken = jnp.take_along_axis(scores, place[..., None], axis=-1, mode="clip")[..., 0]
            entry = jnp.where(found, taken, entry)
        outside = (wanted < 0) | (wanted >= self.size)
        return jnp.where(outside, jnp.asarray(jnp.nan, scores.dtype), entry)


@dataclass(frozen=True)
class Entry:
    """The entry with the wanted number along the whole last axis."""

    def __call__(self, scores: Any, numbers: Any, at: Any = None) -> Any:
        """The shape of `numbers`."""
        del at
        return jnp.take_along_axis(scores, numbers[..., None], axis=-1)[..., 0]
