"""The monoid of the k largest values together with where they lie."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.merging.monoid import Monoid
from combinators.monoids.elementwise import highest, lowest


def merge_top_k(left: Any, right: Any) -> Any:
    """Keep the k best of two states, the best first; k is the length of their leading axis."""
    (value1, index1), (value2, index2) = left, (jnp.flip(leaf, 0) for leaf in right)
    # Beside one list with its best first lies the other with its best last: of every pair the better is kept.
    nan1, nan2 = value1 != value1, value2 != value2
    tie = (value1 == value2) | (nan1 & nan2)
    first = jnp.where(tie, index1 <= index2, (value1 > value2) | (nan1 & ~nan2))
    value, index = jnp.where(first, value1, value2), jnp.where(first, index1, index2)
    return keep_best(value, index, value.shape[0])


def keep_best(value: Any, index: Any, count: int) -> Any:
    """Sort pairs along the leading axis, the best first, and keep `count` of them.

    Args:
      value: `(n, ...)`.
      index: `(n, ...)`, int32.
      count: how many to keep; at most `n`.
    """
    # Ascending, NaNs are last, so reversed they come first; the complement lets the lower index win among equals.
    ordered, complement = lax.sort((value, ~index), dimension=0, num_keys=2)
    return jnp.flip(ordered, 0)[:count], ~jnp.flip(complement, 0)[:count]


def top_k_identity(cell_type: Any) -> Any:
    """Make the state of no element: the least value, at the largest index, k times."""
    value, index = cell_type
    return lowest(value), highest(index)


TopK: Monoid = Monoid(top_k_identity, merge_top_k, commutative=True, name="TopK")
"""State `(values, indices)`, both `(k,)`, indices int32, the largest value first. Ties go to the lower index. NaN
counts as the largest, as in NumPy's order. Where there are fewer than k elements the rest is padding at the largest
index, which loses against every element. Not idempotent: an element that is merged twice is listed twice.
"""
