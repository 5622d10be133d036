"""The monoid of count, mean and central sums of any order."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp

from combinators.merging.frame import Frame
from combinators.merging.monoid import Monoid

# State: (count, mean, m2, m3, ...), as many orders as the state has leaves; m_p is the sum of (x - mean)**p. The count
# of plain elements is an integer, so that it does not stop growing at 2**24; a float is a total weight.


def shift_sums(sums: Sequence[Any], step: Any) -> list[Any]:
    """Move the origin of power sums.

        sum((x - a + step)**p) = sum over k of binomial(p, k) step**k sum((x - a)**(p - k))

    Args:
      sums: the sums of `(x - a)**p` for `p` = 0, 1, ...; None stands for a sum that is 0.
      step: how far the deviations move; of the shape of the sums.

    Returns:
      The sums of `(x - a + step)**p` for the same `p`.
    """
    changes = sum_changes(sums, step)
    return [
        whole if change is None else change if whole is None else whole + change
        for whole, change in zip(sums, changes, strict=True)
    ]


def sum_changes(sums: Sequence[Any], step: Any) -> list[Any]:
    """What is added to power sums where their origin moves, as `shift_sums` says; None where nothing is."""
    powers = [None, step]
    while len(powers) < len(sums):
        powers.append(powers[-1] * step)
    changes: list[Any] = []
    for order in range(len(sums)):
        lower = [k for k in range(1, order + 1) if sums[order - k] is not None]
        terms = [math.comb(order, k) * (sums[order - k] * powers[k]) for k in lower]
        changes.append(reduce(operator.add, terms) if terms else None)
    return changes


def add_changed(left: Any, right: Any, change: Any) -> Any:
    """Add two sums and what the move of their origins changes; the larger sum is rounded once.

    A change that is less than half a unit in the last place of the larger sum would be lost there, time after time: it
    is added to the smaller one first.
    """
    is_left = jnp.abs(left) >= jnp.abs(right)
    return jnp.where(is_left, left, right) + (jnp.where(is_left, right, left) + change)


def merge_means(left: Any, right: Any) -> tuple[Any, Any, Any]:
    """Merge counts and means.

        n = n1 + n2,   mean = mean1 + (mean2 - mean1) n2 / n

    Args:
      left: count and mean; the mean has the axes of the count and then its own.
      right: count and mean.

    Returns:
      The common mean, and the steps by which deviations from the left and from the right mean move to it. Where a side
      is empty the mean is that of the other, bit by bit, and both steps are 0.
    """
    (count1, mean1), (count2, mean2) = left, right
    total = count1 + count2
    whole = jnp.where(total == 0, 1, total)
    share1, share2 = ((_over(count, mean1) / _over(whole, mean1)).astype(mean1.dtype) for count in (count1, count2))
    empty1, empty2 = _over(count1 == 0, mean1), _over(count2 == 0, mean1)
    # An empty state has no mean: a difference to it can be infinite, and 0 * inf is NaN.
    gap = jnp.where(empty1 | empty2, 0, mean2 - mean1)
    # From the mean of the larger side, so that a small one far away is not first taken in and then cancelled.
    near = jnp.where(share1 < share2, mean2 - gap * share1, mean1 + gap * share2)
    # A mean that overflowed, or is infinite, must not turn into inf - inf.
    moved = jnp.where(jnp.isfinite(gap), near, mean1 * share1 + mean2 * share2)
    return jnp.where(empty1, mean2, jnp.where(empty2, mean1, moved)), -(gap * share2), gap * share1


def combine_moments(left: Any, right: Any) -> Any:
    """Merge two sets of moments: move the origin of both to the common mean, and add.

    Args:
      left: `(count, mean, m2, ...)`.
      right: `(count, mean, m2, ...)`.

    Returns:
      `(count, mean, m2, ...)` of both together. An empty side changes nothing, bit by bit.

    Source: Chan, Golub, LeVeque 1983, eq. 2.1; Pebay 2008, eq. 2.1 for all orders.
    """
    (count1, mean1, *sums1), (count2, mean2, *sums2) = left, right
    mean, step1, step2 = merge_means((count1, mean1), (count2, mean2))
    central1, central2 = _central(count1, sums1), _central(count2, sums2)
    changes = zip(sum_changes(central1, step1)[2:], sum_changes(central2, step2)[2:], strict=True)
    merged = (add_changed(a, b, x + y) for a, b, (x, y) in zip(central1[2:], central2[2:], changes, strict=True))
    return (weight(count1) + weight(count2), mean, *merged)


def summarize(state: Any) -> Any:
    """Reduce moments to count and total, in a unit in which totals of the greatest floats are none."""
    count, mean = state[:2]
    return count, mean * (_over(count, mean).astype(mean.dtype) * _unit(mean))


def reference_mean(summary: Any) -> Any:
    """Turn the merged counts and totals into the common mean, 0 where there is none that is finite, and the count.

    A total so small that its unit loses it is a mean that is 0 beside any deviation whose square is a float.
    """
    count, total = summary
    whole = _over(jnp.where(count == 0, 1, count), total).astype(total.dtype)
    mean = total / (whole * _unit(total))
    return jnp.where(jnp.isfinite(mean), mean, 0), count


def express(state: Any, reference: Any) -> Any:
    """Express moments by the power sums around a common reference: `(n, n (mean - F) / 2 N, sum((x - F)**2), ...)`.

    Deviations count by half and by their share of all, since `n` of them may be more than the greatest float.
    """
    count, mean, *sums = state
    gap, first = gap_and_first(count, mean, reference)
    return (weight(count), first, *shift_sums(_central(count, sums), gap)[2:])


def restore(reference: Any, addends: Any) -> Any:
    """Turn power sums around a reference back into `(count, mean, m2, ...)`."""
    count, first, *sums = addends
    mean, step = mean_and_step(reference, count, first)
    whole = count.astype(first.dtype)
    moved = shift_sums([whole, whole * step, *sums], -step)[2:]
    return (count, mean, *map(moved_where_finite, sums, moved))


def gap_and_first(count: Any, mean: Any, reference: Any) -> tuple[Any, Any]:
    """How far a mean lies from the reference, and its half by the share of all elements; both 0 of nothing."""
    origin, total = reference
    gap = jnp.where(_over(count == 0, mean), 0, mean - origin)
    # The difference of two floats may be none, that of their halves is.
    half = jnp.where(_over(count == 0, mean), 0, mean / 2 - origin / 2)
    share = weight(count).astype(mean.dtype) / jnp.where(total == 0, 1, total).astype(mean.dtype)
    return gap, half * _over(share, mean)


def mean_and_step(reference: Any, count: Any, first: Any) -> tuple[Any, Any]:
    """The mean, and how far it lies from the reference; both 0 of nothing."""
    origin, total = reference
    whole, some = (jnp.where(number == 0, 1, number).astype(first.dtype) for number in (total, count))
    half = first * _over(whole / some, first)
    # Added twice, since the whole step may be no float.
    return jnp.where(_over(count == 0, first), 0, origin + half + half).astype(first.dtype), half * 2


def moved_where_finite(found: Any, moved: Any) -> Any:
    """Sums around the mean; what has overflowed stays infinite, which moved would be infinity less infinity."""
    return jnp.where(jnp.isfinite(found), moved, found)


def _unit(like: Any) -> Any:
    """A power of two, so small that the totals of as many elements as there may be are floats in it."""
    return jnp.asarray(2.0 ** -(jnp.finfo(like.dtype).maxexp // 4), like.dtype)


def _central(count: Any, sums: Sequence[Any]) -> list[Any]:
    """Sums of the powers 0, 1, ... around the mean; those of an empty state, which has no mean, have no derivative."""
    return [weight(count).astype(sums[0].dtype), None, *(jnp.where(count == 0, 0, m) for m in sums)]


def weight(count: Any) -> Any:
    """Give a count as it adds up: a weight of 0 has no derivative, as there is no place where it would grow."""
    return jnp.where(count == 0, 0, count) if jnp.issubdtype(count.dtype, jnp.floating) else count


def _over(count: Any, mean: Any) -> Any:
    """Give a count the trailing axes of a mean."""
    return jnp.reshape(count, jnp.shape(count) + (1,) * (jnp.ndim(mean) - jnp.ndim(count)))


Moments: Monoid = Monoid(
    0,
    combine_moments,
    commutative=True,
    frame=Frame(summarize, "sum", reference_mean, express, restore),
    name="Moments",
)
"""State `(count, mean, m2, ...)`: an integer (or a float, the total weight) and floats; `m2` is the sum of squared
deviations from the mean, `m3` that of their cubes, and so on: as many orders as the state has leaves.

The frame's admissible references are all finite numbers, with any count; the closer to the mean, the smaller the
rounding error.
Source: Chan, Golub, LeVeque 1983; Pebay 2008.
"""
