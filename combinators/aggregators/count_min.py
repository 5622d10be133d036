"""Count-min: how often an element occurs, for any of too many different ones."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.elementwise import present_state
from combinators.aggregators.entries import counting_number, each_entry, each_entry_on_host
from combinators.arguments import read_integer
from combinators.frozen import dataclass
from combinators.merging.pieces import InPieces
from combinators.numerics.hashing import hash32, reference_hash32


def CountMin(width: int = 1024, depth: int = 4, *, seed: int = 0) -> Aggregator:
    """Count elements in a table that different ones share.

    Each of `depth` rows counts an element in the column that its own hash names; `count_min_estimate` reads the least
    of these counts. Tables add, so any order and any cut give the same bits, and a mesh folds them natively.

        count <= estimate,    P(estimate > count + e n / width) <= exp(-depth)

    with `n` the total of all counts and `e` Euler's number.

    Args:
      width: columns.
      depth: rows, each with a hash of its own.
      seed: of the hashes; tables merge where all three are equal.

    Returns:
      An aggregator of elements, and optionally of integer weights as a second input, to the table: int32
      `(depth, width)`. Counts wrap around past 2**31.

    Raises:
      GraphError: when a size is no positive integer.

    Source: Cormode, Muthukrishnan 2005, theorem 1.
    """
    counting_number("CountMin", width=width, depth=depth)
    table = CountTable(int(width), int(depth), read_integer(seed, "seed= of CountMin"))
    return Aggregator(
        CountOne(table),
        monoids.Sum,
        present_state,
        lift_many=InPieces(table, monoids.Sum),
        reference=CountTableReference(table),
        name="CountMin",
    )


@final
@dataclass(frozen=True)
class CountTable:
    """The table of all elements along the leading axis."""

    width: int
    depth: int
    seed: int

    def __call__(self, xs: Any, weights: Any = None) -> Any:
        """Return int32 `(depth, width, *cell)`."""
        xs = jnp.asarray(xs)
        weights = jnp.ones(xs.shape[:1], jnp.int32) if weights is None else jnp.asarray(weights, jnp.int32)
        return each_entry(self._row, xs, weights)

    def columns(self, x: Any) -> Any:
        """The column of every entry in each row: int32 `(depth, ...)`."""
        seeds = jnp.arange(self.depth, dtype=jnp.uint32) + jnp.uint32(self.seed & 0xFFFFFFFF)
        hashed = hash32(x, seeds.reshape(-1, *(1,) * jnp.ndim(x)))
        return (hashed % np.uint32(self.width)).astype(jnp.int32)

    def _row(self, xs: Any, weights: Any) -> Any:
        rows = jnp.arange(self.depth)[:, None]
        return jnp.zeros((self.depth, self.width), jnp.int32).at[rows, self.columns(xs)].add(weights)


@final
@dataclass(frozen=True)
class CountOne:
    """The table of one element."""

    table: CountTable

    def __call__(self, x: Any, weight: Any = 1) -> Any:
        """Return int32 `(depth, width, *cell)`."""
        columns = self.table.columns(x)[:, None]
        own = jnp.arange(self.table.width).reshape(1, -1, *(1,) * jnp.ndim(x))
        return jnp.where(own == columns, jnp.asarray(weight, jnp.int32), 0)


def count_min_estimate(table: Any, items: Any, *, seed: int = 0) -> Any:
    """Read from a table how often items occur; never too few.

    Args:
      table: `(depth, width)`, the result of `CountMin`.
      items: elements, of any shape; of the kind that was counted, integers or floats: 2.0 and 2 have other hashes.
      seed: that of the sketch.

    Returns:
      int32 of the shape of `items`.
    """
    depth, width = table.shape
    columns = CountTable(width, depth, seed).columns(items)
    rows = jnp.arange(depth).reshape(-1, *(1,) * jnp.ndim(items))
    return jnp.min(table[rows, columns], axis=0)


@final
@dataclass(frozen=True)
class CountTableReference:
    """The same table in NumPy, counted row by row with `bincount`."""

    table: CountTable

    def __call__(self, xs: Any, weights: Any = None) -> Any:
        """Return a table of integers."""
        weights = np.ones(len(xs), np.int32) if weights is None else weights
        return each_entry_on_host(self._row, np.asarray(xs), np.asarray(weights))

    def _row(self, xs: Any, weights: Any) -> Any:
        table = self.table
        columns = [reference_hash32(xs, table.seed + row) % table.width for row in range(table.depth)]
        return np.stack([np.bincount(c, weights, table.width) for c in columns]).astype(np.int64).astype(np.int32)
