"""The aggregators of the largest and the smallest element together with where it lies.

They take two inputs: the values, and their global coordinates, which in a signature is the operand `@name`:
`fold(aggregators.ArgMax(), "row col, @row -> col")`. Coordinates make every cut agree on the winner.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.merging.extrema import Extremum, attains, is_smooth
from combinators.merging.together import reduce_together


def ArgMax() -> Aggregator:
    """Find the largest value and its coordinate.

    Returns:
      An aggregator of values and integer coordinates to a dictionary of `value` and `index` (int32). Ties go to the
      lower coordinate; NaN counts as the largest, as in NumPy. Of nothing: the least value, at the largest index. All
      of the gradient goes to the element at that coordinate.
    """
    return Aggregator(
        lift_indexed, monoids.ArgMax, present_indexed, lift_many=argmax_many, reference=reference_argmax, name="ArgMax"
    )


def ArgMin() -> Aggregator:
    """Find the smallest value and its coordinate.

    Returns:
      An aggregator of values and integer coordinates to a dictionary of `value` and `index` (int32). Ties go to the
      lower coordinate; NaN counts as the smallest, as in NumPy. Of nothing: the greatest value, at the largest index.
      All of the gradient goes to the element at that coordinate.
    """
    return Aggregator(
        lift_indexed, monoids.ArgMin, present_indexed, lift_many=argmin_many, reference=reference_argmin, name="ArgMin"
    )


def lift_indexed(x: Any, index: Any) -> Any:
    """Pair one value with its coordinate."""
    x = jnp.asarray(x)
    return x, jnp.broadcast_to(jnp.asarray(index, jnp.int32), x.shape)


def argmax_many(xs: Any, indices: Any) -> Any:
    """Find the largest value and its lowest coordinate along the leading axis; that element has the gradient."""
    return _extreme("max", xs, indices)


def argmin_many(xs: Any, indices: Any) -> Any:
    """Find the smallest value and its lowest coordinate along the leading axis; that element has the gradient."""
    return _extreme("min", xs, indices)


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


def _extreme(kind: Extremum, xs: Any, indices: Any) -> Any:
    xs, indices = jnp.asarray(xs), jnp.asarray(indices, jnp.int32)
    return _value(kind, xs, indices) if is_smooth(xs) else reduce_together((kind,), xs)[0], _index(kind, xs, indices)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(kind: Extremum, xs: Any, indices: Any) -> Any:
    return reduce_together((kind,), xs)[0]


@_value.defjvp
def _(kind: Extremum, primals: Any, tangents: Any) -> Any:
    xs, indices = primals
    value = _value(kind, xs, indices)
    wins = attains(xs, value) & (_spread(indices, xs) == _index(kind, xs, indices))
    count = jnp.maximum(jnp.sum(wins, axis=0), 1).astype(value.dtype)
    return value, jnp.sum(jnp.where(wins, tangents[0], 0), axis=0, dtype=value.dtype) / count


def _index(kind: Extremum, xs: Any, indices: Any) -> Any:
    """The lowest coordinate of those that attain the extremum."""
    (value,) = reduce_together((kind,), lax.stop_gradient(xs))
    last = jnp.iinfo(jnp.int32).max
    return jnp.min(jnp.where(attains(xs, value), _spread(indices, xs), last), axis=0, initial=last)


def _spread(indices: Any, xs: Any) -> Any:
    return jnp.reshape(indices, (-1,) + (1,) * (xs.ndim - 1))


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
