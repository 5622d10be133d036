"""Caches for decoding: what layers keep of the positions that they saw, so that the next ones need no others."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.leaves.index import index
from combinators.leaves.map import Map
from combinators.recording.value import Value


@dataclass(frozen=True)
class PutRows:
    """The rows of a block of a cache, those of a range of positions by new ones.

    Axes are any leading ones, positions, and two of a row.
    """

    cache_rows: ClassVar = (1, -3)

    def __call__(self, cache: Any, rows: Any, first: Any, at: Any) -> Any:
        """Shape and dtype of `cache`; positions outside of it are left out."""
        return _put(cache, rows, first, at)


@dataclass(frozen=True)
class PutWindow:
    """The same for a whole cache: reads and writes as many positions as there are new rows."""

    def __call__(self, cache: Any, rows: Any, first: Any, at: Any = None) -> Any:
        """Shape and dtype of `cache`."""
        del at
        count, length = rows.shape[-3], cache.shape[-3]
        if count >= length:
            return _put(cache, rows, first, jnp.arange(length, dtype=first.dtype))
        start = jnp.clip(first, 0, length - count)
        window = lax.dynamic_slice_in_dim(cache, start, count, axis=-3)
        window = _put(window, rows, first, start + jnp.arange(count, dtype=first.dtype))
        return lax.dynamic_update_slice_in_dim(cache, window, start, axis=-3)


@dataclass(frozen=True)
class Within:
    """What lies within a number of positions; NaN behind.

    Attributes:
      length: how many.
    """

    length: int

    def __call__(self, x: Any, positions: Any) -> Any:
        """Shape and dtype of `x`, whose last axes are positions and features."""
        return jnp.where((positions < self.length)[:, None], x, jnp.asarray(jnp.nan, x.dtype))


def visible(position: Any, key: Any) -> Any:
    """Which keys a position sees: those up to its own."""
    return key[None, :] <= position[:, None]


def put_rows(cache: Value, rows: Value, first: Value) -> Value:
    """The cache `(..., keys, heads, head_dim)` with rows `(..., seq, heads, head_dim)` from the position `first` on."""
    text = "... k h d, ... [s] h d, (), @k -> ... k h d"
    return Map(PutRows(), text, dense=PutWindow(), name="put")(cache, rows, first)


def positions_after(first: Value, over: str, like: Value) -> Value:
    """The positions along a dimension of a tensor that begins at the position `first`."""
    return index(over, like) + first


def _put(cache: Any, rows: Any, first: Any, at: Any) -> Any:
    # What is padded repeats a coordinate, so each cell of the cache looks for its row, not the other way round.
    place, count = at - first, rows.shape[-3]
    if not count:
        return cache
    found = jnp.take(rows, jnp.clip(place, 0, count - 1), axis=-3).astype(cache.dtype)
    return jnp.where(((place >= 0) & (place < count))[:, None, None], found, cache)
