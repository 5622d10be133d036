"""The monoid of a stable `log(sum(exp(x)))`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.merging.frame import Frame
from combinators.merging.monoid import Monoid

# State: (m, s), which stands for s * exp(m); "nothing yet" is (-inf, 0).


def log_ratio(value: Any, top: Any) -> Any:
    """Compute `value - top` for `value <= top`, with a meaning where `top` is infinite.

    Where `top` is `-inf` there is nothing to rescale and the result is `-inf`. Where it is `inf`, only infinite values
    count: the result is 0 for them and `-inf` for all others. Subtraction and selection are linear, so no branch that
    was not taken leaks a NaN into the gradient.

    Args:
      value: an array.
      top: an array of the same shape, at least `value`.

    Returns:
      The logarithm of `exp(value) / exp(top)`.
    """
    finite = jnp.isfinite(top)
    return jnp.where(finite, value - jnp.where(finite, top, 0), jnp.where(value == jnp.inf, 0, -jnp.inf))


def finite_or_zero(top: Any) -> Any:
    """Replace what is not finite, to be a reference for exponents: infinity by the largest number, the rest by 0.

    Beside an infinity every number counts nothing; relative to 0 large ones would overflow, and so would slopes.
    """
    return jnp.nan_to_num(top, nan=0, neginf=0)


def combine_logsumexp(left: Any, right: Any) -> Any:
    """Merge `(m1, s1)` and `(m2, s2)` into `(m, s1 exp(m1 - m) + s2 exp(m2 - m))` with `m = max(m1, m2)`."""
    (top1, sum1), (top2, sum2) = left, right
    top = jnp.maximum(top1, top2)
    return top, sum1 * jnp.exp(log_ratio(top1, top)) + sum2 * jnp.exp(log_ratio(top2, top))


def logsumexp_value(state: Any) -> Any:
    """Present a state as `m + log(s)`.

    Args:
      state: `(m, s)`.

    Returns:
      The logarithm; `-inf`, with gradient 0, where nothing or only `-inf` was folded.
    """
    top, total = state
    nothing = (top == -jnp.inf) | (total == 0)
    # Beside an infinity nothing has an influence that is a number.
    infinite = ~nothing & ((top == jnp.inf) | (total == jnp.inf))
    usual = top + jnp.log(jnp.where((total == 0) | infinite, 1, total))
    return jnp.where(nothing & ~jnp.isnan(top), -jnp.inf, jnp.where(infinite, jnp.inf, usual))


def maximum(state: Any) -> Any:
    """Summarise a state by its maximum."""
    return state[0]


def express(state: Any, reference: Any) -> Any:
    """Express a state as the addend `s exp(m - F)`."""
    top, total = state
    infinite = top == jnp.inf
    return jnp.where(infinite, jnp.inf, total * jnp.exp(jnp.where(infinite, reference, top) - reference))


def restore(reference: Any, total: Any) -> Any:
    """Turn the sum of the addends back into `(m, s)`."""
    top = jnp.where(total == jnp.inf, jnp.inf, reference)
    return jnp.where(total == 0, -jnp.inf, top).astype(total.dtype), total


LogSumExp: Monoid = Monoid(
    (-jnp.inf, 0),
    combine_logsumexp,
    commutative=True,
    frame=Frame(maximum, "max", finite_or_zero, express, restore),
    name="LogSumExp",
)
"""State `(m, s)`: a maximum and a sum scaled by it; it stands for `m + log(s)`. States with the same value are equal.

The frame's admissible references are all finite numbers `F` for which `exp(x - F)` neither overflows nor underflows
at the largest `x`. NaN propagates; `inf` gives `inf`. Source: Milakov and Gimelshein 2018, section 3.
"""
