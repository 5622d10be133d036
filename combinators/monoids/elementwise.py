"""Monoids that work on every element alike: sums, products, extrema and logic.

On a state of several leaves they work leaf by leaf. All but `Prod` are native: a mesh axis folds them with one
collective.
"""

from __future__ import annotations

import typing
from collections.abc import Callable

import jax
import jax.numpy as jnp

from combinators.merging.extrema import extreme_of
from combinators.merging.monoid import Monoid


def lowest(cell_type: typing.Any) -> typing.Any:
    """Fill a cell with the least values of its dtypes: the identity of a maximum.

    Args:
      cell_type: pytree of `jax.ShapeDtypeStruct`.

    Returns:
      A pytree of scalars: `-inf`, the least integer or False.

    Raises:
      GraphError: when a dtype has no order.
    """
    return jax.tree.map(lambda leaf: extreme_of(leaf.dtype, -1), cell_type)


def highest(cell_type: typing.Any) -> typing.Any:
    """Fill a cell with the greatest values of its dtypes: the identity of a minimum.

    Args:
      cell_type: pytree of `jax.ShapeDtypeStruct`.

    Returns:
      A pytree of scalars: `inf`, the greatest integer or True.

    Raises:
      GraphError: when a dtype has no order.
    """
    return jax.tree.map(lambda leaf: extreme_of(leaf.dtype, 1), cell_type)


def _make(
    name: str,
    identity: typing.Any,
    combine: Callable[..., typing.Any],
    *,
    idempotent: bool = False,
    inverse: Callable[..., typing.Any] | None = None,
) -> Monoid:
    return Monoid(identity, combine, commutative=True, idempotent=idempotent, inverse=inverse, name=name)


Sum: Monoid = _make("Sum", 0, jnp.add, inverse=jnp.negative)
"""`a + b`, identity 0. Integers wrap around; the inverse is `-a`. Native."""

Prod: Monoid = _make("Prod", 1, jnp.multiply)
"""`a * b`, identity 1. Without an inverse, since 0 has none."""

Min: Monoid = _make("Min", highest, jnp.minimum, idempotent=True)
"""`min(a, b)`, identity the greatest value of the dtype. NaN wins. Native."""

Max: Monoid = _make("Max", lowest, jnp.maximum, idempotent=True)
"""`max(a, b)`, identity the least value of the dtype. NaN wins. Native."""

Any: Monoid = _make("Any", False, jnp.logical_or, idempotent=True)
"""`a or b` of booleans, identity False. Native."""

All: Monoid = _make("All", True, jnp.logical_and, idempotent=True)
"""`a and b` of booleans, identity True. Native."""
