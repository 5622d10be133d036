"""The aggregator of the k largest elements together with where they lie.

It takes two inputs, as `ArgMax` does: `fold(aggregators.TopK(64), "row col, @row -> col")`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.two_stage import best_positions
from combinators.arguments import is_whole
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.monoids.elementwise import lowest
from combinators.monoids.top_k import keep_best

ABSENT = np.iinfo(np.int32).max  # the index of padding in a state


def TopK(k: int) -> Aggregator:
    """Find the k largest values and their coordinates.

    Args:
      k: how many; 1 or more.

    Returns:
      An aggregator of values and integer coordinates to a dictionary of `value` `(k,)` and `index` `(k,)` (int32), the
      largest first, and `count` (int32), how many of them are elements. Ties go to the lower coordinate; NaN counts as
      the largest, as in NumPy's order. Beyond `count` values are the least of their dtype, at index -1.

    Raises:
      GraphError: when `k` is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> best = TopK(2).run(jnp.array([1.0, 5.0, 3.0, 5.0]), jnp.arange(4))
      >>> best["value"].tolist(), best["index"].tolist(), int(best["count"])
      ([5.0, 5.0], [1, 3], 2)
    """
    given = cast("Any", k)
    if not is_whole(given) or given < 1:
        raise GraphError(
            message(
                "TopK: cannot be built.", f"k is {given!r}, expected an integer of 1 or more", remedy="Pass how many."
            )
        )
    k = int(k)
    return Aggregator(
        TopKLift(k),
        monoids.TopK,
        present_top_k,
        lift_many=TopKLiftMany(k),
        reference=TopKReference(k),
        name="TopK",
    )


@dataclass(frozen=True)
class TopKLift:
    """One value with its coordinate, before `k - 1` places of padding."""

    k: int

    def __call__(self, x: Any, index: Any) -> Any:
        """State of one element."""
        x = jnp.asarray(x)
        return _padded(x[None], jnp.broadcast_to(jnp.asarray(index, jnp.int32), x.shape)[None], self.k)


@dataclass(frozen=True)
class TopKLiftMany:
    """The k largest along the leading axis.

    Attributes:
      k: how many.
      ascend: whether the coordinates are known to ascend, so that the first of equals is the one to keep.
    """

    k: int
    ascend: bool = False

    def of_ascending(self) -> TopKLiftMany:
        """The same for coordinates that ascend."""
        return TopKLiftMany(self.k, ascend=True)

    def __call__(self, xs: Any, indices: Any) -> Any:
        """State of all elements."""
        xs, indices = jnp.asarray(xs), jnp.asarray(indices, jnp.int32)
        kept = min(self.k, xs.shape[0])
        if kept == 0:
            return _padded(xs, jnp.zeros(xs.shape, jnp.int32), self.k)

        def by_position() -> Any:
            find = partial(best_positions, count=kept)
            for _ in xs.shape[1:]:
                find = jax.vmap(find, in_axes=-1, out_axes=-1)
            position, inside = find(lax.stop_gradient(xs)), "promise_in_bounds"
            return jnp.take_along_axis(xs, position, axis=0, mode=inside), indices.at[position].get(mode=inside)

        def by_index() -> Any:
            spread = jnp.reshape(indices, (-1,) + (1,) * (xs.ndim - 1))
            return keep_best(xs, jnp.broadcast_to(spread, xs.shape), kept)

        if self.ascend:
            value, index = by_position()
        else:
            value, index = lax.cond(jnp.all(indices[1:] >= indices[:-1]), by_position, by_index)
        return _padded(value, index, self.k)


def present_top_k(state: Any) -> Any:
    """Present values, indices and the number of elements by name."""
    value, index = state
    return {
        "value": value,
        "index": jnp.where(index == ABSENT, -1, index),
        "count": jnp.sum(index != ABSENT, axis=0, dtype=jnp.int32),
    }


@dataclass(frozen=True)
class TopKReference:
    """The k largest by a sort in NumPy."""

    k: int

    def __call__(self, xs: Any, indices: Any) -> Any:
        """What is presented, as NumPy arrays."""
        xs, indices = np.asarray(xs), np.asarray(indices, np.int32)
        cell, order = xs.shape[1:], np.argsort(indices, kind="stable")
        value = np.full((self.k, *cell), lowest(xs), xs.dtype)
        index = np.full((self.k, *cell), -1, np.int32)
        for at in np.ndindex(cell):
            column = xs[(slice(None), *at)]
            rank = np.unique(column, return_inverse=True)[1]
            best = order[np.argsort(-rank[order], kind="stable")][: self.k]
            value[(slice(len(best)), *at)], index[(slice(len(best)), *at)] = column[best], indices[best]
        return {"value": value, "index": index, "count": np.full(cell, min(len(xs), self.k), np.int32)}


def _padded(value: Any, index: Any, k: int) -> Any:
    missing = (k - value.shape[0], *value.shape[1:])
    if missing[0] == 0:
        return value, index
    least = jnp.full(missing, lowest(value), value.dtype)
    return jnp.concatenate([value, least]), jnp.concatenate([index, jnp.full(missing, ABSENT, jnp.int32)])
