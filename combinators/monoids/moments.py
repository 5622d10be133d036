"""The monoid of count, mean and sum of squared deviations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frame import Frame
from combinators.monoid import Monoid

# State: (count, mean, m2); m2 the sum of (x - mean)**2. Count is an integer, so that it does not stop growing at 2**24.


def combine_moments(left: Any, right: Any) -> Any:
    """Merge two sets of moments.

        n = n1 + n2,   d = mean2 - mean1,   mean = mean1 + d n2 / n,   m2 = m2_1 + m2_2 + d**2 n1 n2 / n

    Args:
      left: `(count, mean, m2)`.
      right: `(count, mean, m2)`.

    Returns:
      `(count, mean, m2)` of both together. An empty side changes nothing, bit by bit.

    Source: Chan, Golub, LeVeque 1983, eq. 2.1.
    """
    (count1, mean1, sum1), (count2, mean2, sum2) = left, right
    count = count1 + count2
    share = (count2 / jnp.maximum(count, 1)).astype(mean1.dtype)
    # An empty state has no mean: a difference to it can be infinite, and 0 * inf is NaN.
    empty = (count1 == 0) | (count2 == 0)
    gap = jnp.where(empty, 0, mean2 - mean1)
    # A mean that overflowed, or is infinite, must not turn into inf - inf.
    moved = jnp.where(jnp.isfinite(gap), mean1 + gap * share, mean1 * (1 - share) + mean2 * share)
    mean = jnp.where(count1 == 0, mean2, jnp.where(count2 == 0, mean1, moved))
    # Second factor first: gap**2 alone could overflow where the product does not.
    return count, mean, sum1 + sum2 + gap * (gap * share * count1.astype(mean1.dtype))


def summarize(state: Any) -> Any:
    """Reduce moments to count and total."""
    count, mean, _ = state
    return count, mean * count.astype(mean.dtype)


def reference_mean(summary: Any) -> Any:
    """Turn the merged counts and totals into the common mean; 0 where there is nothing, or no finite mean."""
    count, total = summary
    mean = total / jnp.maximum(count, 1).astype(total.dtype)
    return jnp.where(jnp.isfinite(mean), mean, 0)


def express(state: Any, reference: Any) -> Any:
    """Express moments around a common reference: `(n, n (mean - F), m2 + n (mean - F)**2)`."""
    count, mean, squares = state
    gap = mean - reference
    first = count.astype(mean.dtype) * gap
    return count, first, squares + first * gap


def restore(reference: Any, addends: Any) -> Any:
    """Turn the sums of the expressed moments back into `(count, mean, m2)`."""
    count, first, second = addends
    step = first / jnp.maximum(count, 1).astype(first.dtype)
    mean = jnp.where(count == 0, 0, reference + step)
    return count, mean.astype(first.dtype), second - first * step


Moments: Monoid = Monoid(
    0,
    combine_moments,
    commutative=True,
    frame=Frame(summarize, "sum", reference_mean, express, restore),
    name="Moments",
)
"""State `(count, mean, m2)`: an integer and two floats; `m2` is the sum of squared deviations from the mean.

The frame's admissible references are all finite numbers; the closer to the mean, the smaller the rounding error.
Source: Chan, Golub, LeVeque 1983.
"""
