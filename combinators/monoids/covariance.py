"""The monoid of count, means and sums of products of deviations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.merging.frame import Frame
from combinators.merging.monoid import Monoid
from combinators.monoids.moments import (
    add_changed,
    gap_and_first,
    mean_and_step,
    merge_means,
    moved_where_finite,
    reference_mean,
    summarize,
    weight,
)

# State: (count, mean, products): a number (integer, or float for a total weight), (d,) and (d, d).


def combine_covariance(left: Any, right: Any) -> Any:
    """Merge two sets of products of deviations: move the origin of both to the common mean, and add.

        products = products1 + products2 + n1 s1 s1^T + n2 s2 s2^T,   s_i = mean_i - mean

    Args:
      left: `(count, mean, products)` of shapes `()`, `(d,)` and `(d, d)`.
      right: the same.

    Returns:
      The same of both together. An empty side changes nothing, bit by bit.

    Source: Pebay 2008, eq. 3.11.
    """
    (count1, mean1, products1), (count2, mean2, products2) = left, right
    mean, step1, step2 = merge_means((count1, mean1), (count2, mean2))
    change = _change(count1, step1) + _change(count2, step2)
    known = (_known(count1, products1), _known(count2, products2))
    return weight(count1) + weight(count2), mean, add_changed(*known, change)


def express(state: Any, reference: Any) -> Any:
    """Express a state by the sums around a common reference: `(n, n (mean - F) / 2 N, products around F)`."""
    count, mean, products = state
    gap, first = gap_and_first(count, mean, reference)
    return weight(count), first, _moved(count, products, gap)


def restore(reference: Any, addends: Any) -> Any:
    """Turn sums around a reference back into `(count, mean, products)`."""
    count, first, products = addends
    mean, step = mean_and_step(reference, count, first)
    moved = products - count.astype(first.dtype) * jnp.outer(step, step)
    return count, mean, moved_where_finite(products, moved)


def _moved(count: Any, products: Any, step: Any) -> Any:
    """Products around the mean, seen from `-step` beside it."""
    return _known(count, products) + _change(count, step)


def _known(count: Any, products: Any) -> Any:
    """Products around the mean; those of an empty state have no derivative."""
    return jnp.where(count == 0, 0, products)


def _change(count: Any, step: Any) -> Any:
    return weight(count).astype(step.dtype) * jnp.outer(step, step)


Covariance: Monoid = Monoid(
    0,
    combine_covariance,
    commutative=True,
    frame=Frame(summarize, "sum", reference_mean, express, restore),
    name="Covariance",
)
"""State `(count, mean, products)`: a number, `(d,)` and `(d, d)`; `products` is the sum of `(x - mean) (x - mean)^T`.

The frame's admissible references are all finite vectors, with any count; the closer to the mean, the smaller the
rounding error.
Source: Chan, Golub, LeVeque 1983; Pebay 2008.
"""
