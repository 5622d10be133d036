"""The monoids of the largest and the smallest value together with where it lies."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.merging.monoid import Monoid
from combinators.monoids.elementwise import highest, lowest

# State: (value, index). NaN beats every number, as in NumPy; equal values, and NaNs, go to the lower index.


def combine_argmax(left: Any, right: Any) -> Any:
    """Keep the larger value, at equal values the lower index."""
    return _keep(left, right, right[0] > left[0])


def combine_argmin(left: Any, right: Any) -> Any:
    """Keep the smaller value, at equal values the lower index."""
    return _keep(left, right, right[0] < left[0])


def _keep(left: Any, right: Any, is_better: Any) -> Any:
    (value1, index1), (value2, index2) = left, right
    nan1, nan2 = value1 != value1, value2 != value2
    tie = (value1 == value2) | (nan1 & nan2)
    take = jnp.where(tie, index2 < index1, (is_better | nan2) & ~nan1)
    return jnp.where(take, value2, value1), jnp.where(take, index2, index1)


def argmax_identity(cell_type: Any) -> Any:
    """Make the state of no element: the least value, at the largest index."""
    value, index = cell_type
    return lowest(value), highest(index)


def argmin_identity(cell_type: Any) -> Any:
    """Make the state of no element: the greatest value, at the largest index."""
    value, index = cell_type
    return highest(value), highest(index)


ArgMax: Monoid = Monoid(argmax_identity, combine_argmax, commutative=True, idempotent=True, name="ArgMax")
"""State `(value, index)`, index int32. Ties go to the lower index. NaN counts as the largest, as in NumPy."""

ArgMin: Monoid = Monoid(argmin_identity, combine_argmin, commutative=True, idempotent=True, name="ArgMin")
"""State `(value, index)`, index int32. Ties go to the lower index. NaN counts as the smallest, as in NumPy."""
