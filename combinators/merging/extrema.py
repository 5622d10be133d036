"""Maxima and minima at ties: who has the gradient, and how it comes out the same however the elements are cut.

Where several elements attain an extremum it has no derivative. JAX gives every one of two equal arguments a half, so
that what comes of many depends on how they were paired. Here it never does:

- a **fold** shares the gradient equally among all elements that attain the extremum. Partial extrema that are merged
  out of order, over a mesh or turn by turn, are accompanied by how many elements attain them;
- what is merged **in order** (a scan, a window, a segment, a run, the states of a monoid that does not commute) gives
  all of it to the first element that attains the extremum. That choice is associative, and needs only the values.

An extremum that is the identity (`-inf` of a maximum), which may stand for no element, has no derivative when it is
merged in order. A NaN attains every extremum.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.errors import GraphError, message
from combinators.frozen import dataclass

Extremum = Literal["max", "min"]
EXTREMA = frozenset({"max", "min"})
"""Native monoids with a kink, where elements tie."""

_MERGES: dict[str, Any] = {"max": jnp.maximum, "min": jnp.minimum}


def is_smooth(leaf: Any) -> bool:
    """Whether an array has derivatives at all."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def attains(leaf: Any, extremum: Any) -> Any:
    """Where an array attains an extremum; NaN attains NaN."""
    return (leaf == extremum) | ((leaf != leaf) & (extremum != extremum))


def extreme_of(dtype: Any, sign: int) -> Any:
    """The least value of a dtype (`sign` -1) or its greatest (1): the identity of a maximum, of a minimum.

    Args:
      dtype: which.
      sign: -1 or 1.

    Returns:
      An infinity, the end of the integers, False or True; a scalar.

    Raises:
      GraphError: when the dtype has no order.
    """
    if dtype == jnp.bool_:
        return sign > 0
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        return np.asarray(info.max if sign > 0 else info.min, dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return _end_of_floats(dtype, sign)
    raise GraphError(
        message(
            "Max, Min: the state has no order.",
            "expected  integers, real floats or booleans",
            f"got       {dtype}",
            remedy="Fold the real part, the absolute value or another ordered quantity.",
        )
    )


def is_identity(kind: Extremum, value: Any) -> Any:
    """Where an array of floats is the identity of the extremum, which may stand for no element."""
    end = _end_of_floats(value.dtype, 1)
    return value == (-end if kind == "max" else end)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def earlier(kind: Extremum, left: Any, right: Any) -> Any:
    """The extremum of two arrays, of which the left one comes first; NaN wins. At ties the left one has the gradient.

    Args:
      kind: which.
      left: real, of any shape.
      right: of the same shape.
    """
    return _MERGES[kind](left, right)


@earlier.defjvp
def _(kind: Extremum, primals: Any, tangents: Any) -> Any:
    value = earlier(kind, *primals)
    change = jnp.where(attains(primals[0], value), *tangents)
    return value, jnp.where(is_identity(kind, value), 0, change).astype(value.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def running(kind: Extremum, axis: int, reverse: bool, steps: Any) -> Any:
    """Running extrema along an axis, of the steps up to each one or, reversed, from it on; at ties as `earlier`."""
    scan = lax.cummax if kind == "max" else lax.cummin
    return scan(steps, axis=axis, reverse=reverse)


@running.defjvp
def _(kind: Extremum, axis: int, reverse: bool, primals: Any, tangents: Any) -> Any:
    (steps,), (change,) = primals, tangents
    value = running(kind, axis, reverse, steps)
    first = _first_step(axis, reverse, steps, value)
    moved = jnp.take_along_axis(change, first, axis=axis, mode="promise_in_bounds")
    return value, jnp.where(is_identity(kind, value), 0, moved).astype(value.dtype)


def _first_step(axis: int, reverse: bool, steps: Any, value: Any) -> Any:
    """For every running extremum the first of its steps that attains it."""
    size = steps.shape[axis]
    if size > np.iinfo(np.int32).max:
        raise GraphError(
            message(
                f"a running extremum over {size} steps has no gradient",
                "the step that has it is found by its place, an int32",
                remedy="Scan at most 2**31 - 1 steps.",
            )
        )
    place = lax.broadcasted_iota(jnp.int32, steps.shape, axis)
    # 0 of what varies over a mesh, so that the places do.
    place = place + jnp.zeros_like(steps, jnp.int32)
    if reverse:
        return lax.cummin(jnp.where(attains(steps, value), place, size - 1), axis=axis, reverse=True)
    if size == 0:
        return place
    before = jnp.roll(value, 1, axis)
    is_new = (place == 0) | (attains(steps, value) & ~attains(before, value))
    return lax.cummax(jnp.where(is_new, place, 0), axis=axis)


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Attained:
    """An extremum of some elements.

    Attributes:
      value: an array.
      count: int32 of the same shape: how many elements attain it; 0 where there is none.
    """

    value: Any
    count: Any


def merge_attained(kind: Extremum, left: Attained, right: Attained) -> Attained:
    """Merge the extrema of two sets of elements, in any order; the gradient goes to both by their counts."""
    value = _shared(kind, left.value, right.value, left.count, right.count)
    return Attained(value, sum(_counts(value, (left.value, right.value), (left.count, right.count))))


def _counts(value: Any, leaves: Any, counts: Any) -> list[Any]:
    return [jnp.where(attains(leaf, value), count, 0) for leaf, count in zip(leaves, counts, strict=True)]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _shared(kind: Extremum, left: Any, right: Any, left_count: Any, right_count: Any) -> Any:
    return _MERGES[kind](left, right)


@_shared.defjvp
def _(kind: Extremum, primals: Any, tangents: Any) -> Any:
    value = _shared(kind, *primals)
    left, right = (count.astype(value.dtype) for count in _counts(value, primals[:2], primals[2:]))
    whole = jnp.where(left + right == 0, 1, left + right)
    return value, tangents[0] * (left / whole) + tangents[1] * (right / whole)


def _end_of_floats(dtype: Any, sign: int) -> Any:
    # Some eight-bit floats have no infinity; there the largest finite value takes its place.
    with np.errstate(over="ignore", invalid="ignore"):
        end = np.asarray(sign * np.inf, dtype)
    return end if np.isinf(end) else np.asarray(sign * jnp.finfo(dtype).max, dtype)
