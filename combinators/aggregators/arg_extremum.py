"""The aggregators of the largest and the smallest element together with where it lies.

They take two inputs: the values, and their global coordinates, which in a signature is the operand `@name`:
`fold(aggregators.ArgMax(), "row col, @row -> col")`. Coordinates make every cut agree on the winner.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregator import Aggregator
from combinators.together import reduce_together


def ArgMax() -> Aggregator:
    """Find the largest value and its coordinate.

    Returns:
      An aggregator of values and integer coordinates to a dictionary of `value` and `index` (int32). Ties go to the
      lower coordinate; NaN counts as the largest, as in NumPy. Of nothing: the least value, at the largest index.
    """
    return Aggregator(
        lift_indexed, monoids.ArgMax, present_indexed, lift_many=argmax_many, reference=reference_argmax, name="ArgMax"
    )


def ArgMin() -> Aggregator:
    """Find the smallest value and its coordinate.

    Returns:
      An aggregator of values and integer coordinates to a dictionary of `value` and `index` (int32). Ties go to the
      lower coordinate; NaN counts as the smallest, as in NumPy. Of nothing: the greatest value, at the largest index.
    """
    return Aggregator(
        lift_indexed, monoids.ArgMin, present_indexed, lift_many=argmin_many, reference=reference_argmin, name="ArgMin"
    )


def lift_indexed(x: Any, index: Any) -> Any:
    """Pair one value with its coordinate."""
    x = jnp.asarray(x)
    return x, jnp.broadcast_to(jnp.asarray(index, jnp.int32), x.shape)


def argmax_many(xs: Any, indices: Any) -> Any:
    """Find the largest value and its lowest coordinate along the leading axis."""
    (value,) = reduce_together(("max",), jnp.asarray(xs))
    return value, _lowest_index(xs, indices, value)


def argmin_many(xs: Any, indices: Any) -> Any:
    """Find the smallest value and its lowest coordinate along the leading axis."""
    (value,) = reduce_together(("min",), jnp.asarray(xs))
    return value, _lowest_index(xs, indices, value)


def present_indexed(state: Any) -> Any:
    """Present value and index by name."""
    value, index = state
    return {"value": value, "index": index}


def reference_argmax(xs: Any, indices: Any) -> Any:
    """Find value and coordinate in NumPy."""
    return _reference(np.argmax, monoids.ArgMax, xs, indices)


def reference_argmin(xs: Any, indices: Any) -> Any:
    """Find value and coordinate in NumPy."""
    return _reference(np.argmin, monoids.ArgMin, xs, indices)


def _lowest_index(xs: Any, indices: Any, value: Any) -> Any:
    wins = (xs == value) | ((xs != xs) & (value != value))
    spread = jnp.reshape(jnp.asarray(indices, jnp.int32), (-1,) + (1,) * (xs.ndim - 1))
    return jnp.min(jnp.where(wins, spread, jnp.iinfo(jnp.int32).max), axis=0, initial=jnp.iinfo(jnp.int32).max)


def _identities(monoid: Any, xs: Any) -> Any:
    return monoid.identity((jax.ShapeDtypeStruct((), xs.dtype), jax.ShapeDtypeStruct((), jnp.int32)))


def _reference(find: Any, monoid: Any, xs: Any, indices: Any) -> Any:
    if len(xs) == 0:
        value, index = _identities(monoid, xs)
        return {"value": np.full(xs.shape[1:], value), "index": np.full(xs.shape[1:], index)}
    # NumPy takes the first of several; in order of the coordinates that is the lowest.
    order = np.argsort(indices, kind="stable")
    xs, indices = xs[order], np.asarray(indices)[order]
    where = find(xs, axis=0)
    return {"value": np.take_along_axis(xs, np.expand_dims(where, 0), axis=0)[0], "index": indices[where]}
