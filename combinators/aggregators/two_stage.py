"""Where the largest of many lie: the maxima of groups first, then the elements of the best groups."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.merging.together import greatest

WIDTH = 32
"""Elements that lie side by side in a group; groups are whole multiples of it."""


def best_positions(keys: Any, count: int) -> Any:
    """Find the positions of the largest, the largest first; of equals the first come first.

    `lax.top_k` orders indices of all elements. Here one reduction reads them, and `lax.top_k` sees the maxima of
    groups, then the elements of `count` groups. That is enough: an element of a group that was not chosen is beaten by
    the maximum of each of the `count` groups that were, which is larger, or equal and further in front.

    Args:
      keys: `(n,)`, real; NaN counts as the largest.
      count: how many, at most `n`.

    Returns:
      int32 `(count,)`.
    """
    group = _group(keys.shape[0], count)
    groups = keys.shape[0] // (2 * group) * 2
    if groups < 2 * count:
        return lax.top_k(_canonical(keys), count)[1]
    whole = groups * group
    best = lax.top_k(_canonical(_maxima(keys[:whole].reshape(groups, group))), count)[1]
    # In order, so that the candidates are in the order of their positions.
    chosen = (jnp.sort(best)[:, None] * group + jnp.arange(group, dtype=jnp.int32)).ravel()
    positions = jnp.concatenate([chosen, jnp.arange(whole, keys.shape[0], dtype=jnp.int32)])
    candidates = keys.at[positions].get(mode="promise_in_bounds")
    return positions.at[lax.top_k(_canonical(candidates), count)[1]].get(mode="promise_in_bounds")


def _group(size: int, count: int) -> int:
    """The size of a group: as many groups as there are candidates in the end, up to a power of 2."""
    return WIDTH << max(0, round(math.log2(max(size, 1) / count) / 2 - math.log2(WIDTH)))


def _maxima(rows: Any) -> Any:
    """The maximum of every row, `WIDTH` columns at a time; NaN wins."""
    columns = rows.reshape(2, rows.shape[0] // 2, -1, WIDTH)
    # Two reductions: made one, they are no longer one loop over columns side by side, and take three times as long.
    across = lax.optimization_barrier(greatest(columns[0], columns[1]))
    return jnp.concatenate(greatest(*across))


def _canonical(keys: Any) -> Any:
    """Make equals the same: `lax.top_k` puts -0.0 below 0.0, and NaN by its sign."""
    if not jnp.issubdtype(keys.dtype, jnp.floating):
        return keys
    return jnp.where(keys == 0, 0, jnp.where(keys != keys, jnp.nan, keys)).astype(keys.dtype)
