"""MinHash: how alike two sets are, from a short signature of each."""

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
from combinators.numerics.hashing import hash32, reference_hash32


def MinHash(size: int = 128, *, seed: int = 0) -> Aggregator:
    """Sign a set by the least value of each of `size` hashes.

    Two sets share an entry with the probability of their Jaccard similarity, which `minhash_similarity` estimates.
    Signatures merge by their minimum to that of the union, so any order, any cut and any repetition give the same bits,
    and a mesh folds them natively.

        standard error of the similarity J = sqrt(J (1 - J) / size)

    Args:
      size: hashes; 128 give an error of at most 4.4%.
      seed: of the hashes; signatures compare where both are equal.

    Returns:
      An aggregator of one input to the signature: uint32 `(size,)`; the largest value for nothing.

    Raises:
      GraphError: when `size` is no positive integer.

    Source: Broder 1997, on the resemblance and containment of documents.
    """
    counting_number("MinHash", size=size)
    signature = Signature(int(size), read_integer(seed, "seed= of MinHash"))
    return Aggregator(
        SignatureOfOne(signature),
        monoids.Min,
        present_state,
        lift_many=signature,
        reference=SignatureReference(signature),
        name="MinHash",
    )


@final
@dataclass(frozen=True)
class Signature:
    """The signature of all elements along the leading axis."""

    size: int
    seed: int

    def __call__(self, xs: Any) -> Any:
        """Return uint32 `(size, *cell)`."""
        return each_entry(self._row, jnp.asarray(xs))

    def values(self, x: Any) -> Any:
        """Every hash of every entry: uint32 `(size, ...)`."""
        seeds = jnp.arange(self.size, dtype=jnp.uint32) + jnp.uint32(self.seed & 0xFFFFFFFF)
        return hash32(x, seeds.reshape(-1, *(1,) * jnp.ndim(x)))

    def _row(self, xs: Any) -> Any:
        return jnp.min(self.values(xs), axis=1, initial=np.uint32(0xFFFFFFFF))


@final
@dataclass(frozen=True)
class SignatureOfOne:
    """The signature of one element."""

    signature: Signature

    def __call__(self, x: Any) -> Any:
        """Return uint32 `(size, *cell)`."""
        return self.signature.values(x)


def minhash_similarity(left: Any, right: Any) -> Any:
    """Estimate the Jaccard similarity of two sets: the size of their intersection over that of their union.

    Args:
      left: a signature `(size, ...)`.
      right: a signature of the same shape, seed and size.

    Returns:
      float32: the share of equal entries; 1 for two empty sets.
    """
    return jnp.mean(left == right, axis=0, dtype=jnp.float32)


@final
@dataclass(frozen=True)
class SignatureReference:
    """The same signature in NumPy, hash by hash."""

    signature: Signature

    def __call__(self, xs: Any) -> Any:
        """Return uint32."""
        return each_entry_on_host(self._row, np.asarray(xs))

    def _row(self, xs: Any) -> Any:
        seeds = (self.signature.seed + i for i in range(self.signature.size))
        return np.array([reference_hash32(xs, s).min(initial=np.uint32(0xFFFFFFFF)) for s in seeds], np.uint32)
