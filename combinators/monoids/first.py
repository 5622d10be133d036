"""The monoids of the first and of the last element that there is."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.merging.monoid import Monoid

# State: (value, valid). Where there is no element `valid` is False and the value is 0.


def combine_first(left: Any, right: Any) -> Any:
    """Keep the left value where there is one."""
    return _choose(left, right)


def combine_last(left: Any, right: Any) -> Any:
    """Keep the right value where there is one."""
    return _choose(right, left)


def _choose(wanted: Any, otherwise: Any) -> Any:
    (value1, valid1), (value2, valid2) = wanted, otherwise
    chosen = jnp.reshape(valid1, jnp.shape(valid1) + (1,) * (jnp.ndim(value1) - jnp.ndim(valid1)))
    return jnp.where(chosen, value1, value2), valid1 | valid2


First: Monoid = Monoid((0, False), combine_first, idempotent=True, name="First")
"""State `(value, valid)`: the value of any dtype and shape, `valid` a boolean. Not commutative; NaN is a value."""

Last: Monoid = Monoid((0, False), combine_last, idempotent=True, name="Last")
"""State `(value, valid)`: the value of any dtype and shape, `valid` a boolean. Not commutative; NaN is a value."""
