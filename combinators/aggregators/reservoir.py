"""Reservoir sampling: k elements, each set of k as likely as any other."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.entries import counting_number, spread
from combinators.arguments import read_integer
from combinators.frozen import dataclass
from combinators.monoids.reservoir import ABSENT, keep_smallest
from combinators.numerics.hashing import hash32, reference_hash32


def Reservoir(k: int = 16, *, seed: int = 0) -> Aggregator:
    """Sample `k` elements uniformly without replacement.

    An element's key is the hash of its coordinate, and those with the k smallest keys are kept. The sample is a
    function of seed and coordinates alone: any order, any cut and any plan draw the same one. Several columns folded
    over the same coordinates are sampled at the same rows. It takes two inputs, as `ArgMax` does:
    `fold(Reservoir(8), "row col, @row -> col")`.

    Args:
      k: how many.
      seed: of the hash; another seed draws another sample.

    Returns:
      An aggregator of values and integer coordinates, each of which occurs once, to a dictionary: `value` `(k,)` and
      `index` `(k,)` (int32) in the random order of the keys, and `count` (int32), how many of them are elements.
      Beyond `count` values are 0, at index -1. The values have gradients.

    Raises:
      GraphError: when `k` is no positive integer.

    Source: Cohen, Kaplan 2007 (bottom-k); Vitter 1985 (reservoirs).
    """
    counting_number("Reservoir", k=k)
    sample = SampleMany(int(k), read_integer(seed, "seed= of Reservoir"))
    return Aggregator(
        SampleOne(sample),
        monoids.Reservoir,
        present_reservoir,
        lift_many=sample,
        reference=SampleReference(sample),
        name="Reservoir",
    )


@final
@dataclass(frozen=True)
class SampleMany:
    """The sample of all elements along the leading axis."""

    k: int
    seed: int

    def __call__(self, xs: Any, indices: Any) -> Any:
        """Return `(key, index, value)`, each `(k, *cell)`."""
        xs, indices = jnp.asarray(xs), jnp.asarray(indices, jnp.int32)
        index = jnp.broadcast_to(spread(indices, xs.ndim - 1), xs.shape)
        kept = min(self.k, xs.shape[0])
        state = keep_smallest(hash32(index, self.seed), index, xs, kept)
        cell = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((self.k - kept, *leaf.shape[1:]), leaf.dtype), state)
        padding = monoids.Reservoir.identity_for(cell)
        return tuple(jnp.concatenate(pair) for pair in zip(state, padding, strict=True))


@final
@dataclass(frozen=True)
class SampleOne:
    """The sample of one element."""

    sample: SampleMany

    def __call__(self, x: Any, index: Any) -> Any:
        """Return `(key, index, value)`, each `(k, *cell)`."""
        x = jnp.asarray(x)
        return self.sample(x[None], jnp.broadcast_to(jnp.asarray(index, jnp.int32), x.shape)[None])


def present_reservoir(state: Any) -> Any:
    """Present values, indices and their number by name."""
    _, index, value = state
    return {
        "value": value,
        "index": jnp.where(index == ABSENT, -1, index),
        "count": jnp.sum(index != ABSENT, axis=0, dtype=jnp.int32),
    }


@final
@dataclass(frozen=True)
class SampleReference:
    """The same sample in NumPy: coordinates sorted by their hash."""

    sample: SampleMany

    def __call__(self, xs: Any, indices: Any) -> Any:
        """Return what is presented, as NumPy arrays."""
        xs, indices, k = np.asarray(xs), np.asarray(indices, np.int32), self.sample.k
        key = reference_hash32(indices, self.sample.seed)
        value = np.zeros((k, *xs.shape[1:]), xs.dtype)
        index = np.full((k, *xs.shape[1:]), -1, np.int32)
        for at in np.ndindex(*xs.shape[1:]):
            column = xs[(slice(None), *at)]
            order = np.lexsort((column, indices, key))[:k]
            value[(slice(len(order)), *at)], index[(slice(len(order)), *at)] = column[order], indices[order]
        return {"value": value, "index": index, "count": np.full(xs.shape[1:], min(len(xs), k), np.int32)}
