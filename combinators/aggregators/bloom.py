"""Bloom filters: whether an element occurred, with a small chance of a false yes and none of a false no."""

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


def Bloom(bits: int = 8192, hashes: int = 4, *, seed: int = 0) -> Aggregator:
    """Remember elements in bits that different ones share.

    An element sets one bit for each hash; `bloom_contains` asks whether all of them are set. Filters merge by
    disjunction, so any order, any cut and any repetition give the same bits, and a mesh folds them natively.

        P(a false yes) ~ (1 - exp(-hashes n / bits))**hashes

    after `n` different elements; the best number of hashes is `ln(2) bits / n`.

    Args:
      bits: of the filter, kept as booleans.
      hashes: bits that an element sets.
      seed: of the hashes; filters merge where all three are equal.

    Returns:
      An aggregator of one input to the filter: bool `(bits,)`.

    Raises:
      GraphError: when a size is no positive integer.

    Source: Bloom 1970; the hashes `h1 + i h2` of Kirsch, Mitzenmacher 2006.
    """
    counting_number("Bloom", bits=bits, hashes=hashes)
    table = Bits(int(bits), int(hashes), read_integer(seed, "seed= of Bloom"))
    return Aggregator(
        BitsOfOne(table),
        monoids.Any,
        present_state,
        lift_many=InPieces(table, monoids.Any),
        reference=BitsReference(table),
        name="Bloom",
    )


@final
@dataclass(frozen=True)
class Bits:
    """The bits of all elements along the leading axis."""

    bits: int
    hashes: int
    seed: int

    def __call__(self, xs: Any) -> Any:
        """Return bool `(bits, *cell)`."""
        return each_entry(self._row, jnp.asarray(xs))

    def places(self, x: Any) -> Any:
        """The bits that every entry sets: int32 `(hashes, ...)`."""
        # An odd step meets all bits of a filter whose size is a power of two.
        first, step = hash32(x, self.seed), hash32(x, self.seed + 1) | 1
        turn = jnp.arange(self.hashes, dtype=jnp.uint32).reshape(-1, *(1,) * jnp.ndim(x))
        return ((first + turn * step) % np.uint32(self.bits)).astype(jnp.int32)

    def _row(self, xs: Any) -> Any:
        return jnp.zeros(self.bits, jnp.bool_).at[self.places(xs)].set(True)


@final
@dataclass(frozen=True)
class BitsOfOne:
    """The bits of one element."""

    table: Bits

    def __call__(self, x: Any) -> Any:
        """Return bool `(bits, *cell)`."""
        own = jnp.arange(self.table.bits).reshape(1, -1, *(1,) * jnp.ndim(x))
        return jnp.any(own == self.table.places(x)[:, None], axis=0)


def bloom_contains(table: Any, items: Any, *, hashes: int = 4, seed: int = 0) -> Any:
    """Ask a filter whether items occurred; a no is certain.

    Args:
      table: `(bits,)`, the result of `Bloom`.
      items: elements, of any shape.
      hashes: that of the filter.
      seed: that of the filter.

    Returns:
      bool of the shape of `items`.
    """
    return jnp.all(table[Bits(table.shape[0], hashes, seed).places(items)], axis=0)


@final
@dataclass(frozen=True)
class BitsReference:
    """The same filter in NumPy, hash by hash."""

    table: Bits

    def __call__(self, xs: Any) -> Any:
        """Return booleans."""
        return each_entry_on_host(self._row, np.asarray(xs))

    def _row(self, xs: Any) -> Any:
        table, found = self.table, np.zeros(self.table.bits, bool)
        first = reference_hash32(xs, table.seed).astype(np.uint64)
        step = reference_hash32(xs, table.seed + 1).astype(np.uint64) | np.uint64(1)
        for turn in range(table.hashes):
            found[(first + np.uint64(turn) * step) % np.uint64(2**32) % np.uint64(table.bits)] = True
        return found
