"""The monoid of sums that keep what rounding takes away."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.merging.monoid import Monoid

# State: (total, error): a rounded sum, and the sum of all that rounding took from it.


def two_sum(left: Any, right: Any) -> tuple[Any, Any]:
    """Add two floats and find what the rounding of their sum took away, exactly.

    Only additions and subtractions, which XLA neither reorders nor fuses, so that it holds under `jit` as well.

    Args:
      left: an array.
      right: an array of the same shape and dtype.

    Returns:
      `(s, e)` with `s = fl(left + right)` and `s + e = left + right`; `e` is 0 where the sum is not finite.

    Source: Knuth 1969, section 4.2.2, theorem B (TwoSum); Moller 1965.
    """
    total = left + right
    virtual = total - left
    error = (left - (total - virtual)) + (right - virtual)
    return total, jnp.where(jnp.isfinite(total), error, 0)


def combine_compensated(left: Any, right: Any) -> Any:
    """Add totals, and to the errors that of this addition."""
    (total1, error1), (total2, error2) = left, right
    total, error = two_sum(total1, total2)
    return total, error1 + error2 + error


def compensated_value(state: Any) -> Any:
    """Present a state as `total + error`."""
    total, error = state
    return total + error


CompensatedSum: Monoid = Monoid(0, combine_compensated, commutative=True, name="CompensatedSum")
"""State `(total, error)` of floats, which stands for `total + error`; states with the same value are equal.

With `u` half of the dtype's epsilon, `|value - sum x| <= u |sum x| + (n u)**2 sum |x|` to first order: as if it were
added with twice the digits and rounded once. Neither native nor framed: rounding errors are no sums.
Source: Neumaier 1974; Ogita, Rump, Oishi 2005, proposition 4.5.
"""
