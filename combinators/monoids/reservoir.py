"""The monoid of the k elements with the smallest keys: a uniform sample, where keys are hashes."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.merging.monoid import Monoid

# State: (key, index, value), each (k, ...), ascending by key; padding has the largest key, at the largest index.

ABSENT = np.iinfo(np.int32).max


def merge_reservoirs(left: Any, right: Any) -> Any:
    """Keep the elements of the k smallest keys of two states; k is the length of their leading axis."""
    key, index, value = (jnp.concatenate(pair) for pair in zip(left, right, strict=True))
    return keep_smallest(key, index, value, left[0].shape[0])


def keep_smallest(key: Any, index: Any, value: Any, count: int) -> Any:
    """Sort elements along the leading axis by key, and keep `count` of them.

    Args:
      key: `(n, ...)`, uint32.
      index: `(n, ...)`, int32.
      value: `(n, ...)`.
      count: how many to keep; at most `n`.
    """
    # Equal keys are one element that came twice, or padding; index and value make the order total all the same. The
    # order carries no derivative, so the values are moved by their positions and not sorted themselves.
    rows = jnp.broadcast_to(jnp.arange(key.shape[0], dtype=jnp.int32).reshape(-1, *(1,) * (key.ndim - 1)), key.shape)
    order = lax.sort((key, index, lax.stop_gradient(value), rows), dimension=0, num_keys=3)[-1][:count]
    return tuple(jnp.take_along_axis(leaf, order, axis=0) for leaf in (key, index, value))


def reservoir_identity(cell_type: Any) -> Any:
    """Make the state of no element: k places of padding."""
    key, index, value = cell_type
    return (
        np.broadcast_to(np.uint32(math.pow(2, 32) - 1), key.shape),
        np.broadcast_to(np.int32(ABSENT), index.shape),
        jnp.zeros(value.shape, value.dtype),
    )


Reservoir: Monoid = Monoid(reservoir_identity, merge_reservoirs, commutative=True, name="Reservoir")
"""State `(keys, indices, values)`, each `(k,)`, keys uint32 and ascending, indices int32. Where there are fewer than k
elements the rest is padding at the largest index. Not idempotent: an element that is merged twice is listed twice.
Source: bottom-k sketches, Cohen, Kaplan 2007.
"""
