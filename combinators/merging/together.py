"""Reductions of several arrays in one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.extrema import Extremum, attains, extreme_of, is_identity, is_smooth

Kind = Literal["sum", "max", "min"]

DEPTH, LANES, MORE_LANES, LONG = 16, 1024, 4096, 1 << 20
"""Rows that one step adds; how many such sums, of all entries of a cell, stand side by side; more from `LONG` on.

Measured on a CPU with 16.8M float32 (64 MB) and four sums of powers: 4 ms, where four separate sums take 50 ms and one
reduction in a single level 31 ms, with an error of 3e-2 where this one has 1e-7. Half the depth takes twice as long.
Of 4M float32 seven reductions take 1.20 to 1.23 times as long as four with more lanes, and 1.31 to 1.35 with the few.
"""


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def reduce_together(kinds: tuple[Kind, ...], *arrays: Any) -> tuple[Any, ...]:
    """Reduce several arrays along their leading axes.

    XLA fuses what the arrays are computed from into the reductions, and reads it once. On CPUs and GPUs that takes one
    reduction of several operands; long axes are reduced in levels there, which is what keeps the rounding error of sums
    small. Compilers for TPUs write every operand of such a reduction to memory first, and put plain ones that read the
    same into one loop by themselves: these are what they are given (docs/design/numerics.md).

    Args:
      kinds: of each array, how it is reduced. NaN wins in maximum and minimum, which on CPUs it does not in those of
        `jnp` (JAX 0.10.2: an axis of some thousands with a NaN has the maximum of the others).
      arrays: all of one shape `(n, ...)`.

    Returns:
      One reduction of shape `(...)` for each array; for `n = 0` zero, or the least or greatest value of the dtype.
    """
    floats = {array.dtype for array in arrays if jnp.issubdtype(array.dtype, jnp.floating)}
    if len(floats) > 1:
        # One reduction takes floats of one precision; a wider one changes no extremum.
        alike = [array.astype(jnp.result_type(*floats)) if array.dtype in floats else array for array in arrays]
        found = reduce_together(kinds, *alike)
        return tuple(each.astype(array.dtype) for each, array in zip(found, arrays, strict=True))
    if kinds == ("sum",) or not _blocks(arrays[0])[0]:
        return separately(kinds, *arrays)
    return lax.platform_dependent(*arrays, tpu=partial(separately, kinds), default=partial(in_levels, kinds))


def separately(kinds: tuple[Kind, ...], *arrays: Any) -> tuple[Any, ...]:
    """The same, one plain reduction for each array."""
    return tuple(_reduced(kind, array) for kind, array in zip(kinds, arrays, strict=True))


def _blocks(array: Any) -> tuple[int, int]:
    """Into how many blocks of `DEPTH` rows of how many sums an array is cut; none where it is short."""
    lanes = LANES if array.size < LONG else MORE_LANES
    width = max(1, lanes // max(1, math.prod(array.shape[1:])))
    return array.shape[0] // (DEPTH * width), width


def in_levels(kinds: tuple[Kind, ...], *arrays: Any) -> tuple[Any, ...]:
    """The same in one loop over all arrays, as far as they are long."""
    shape, (blocks, width) = arrays[0].shape, _blocks(arrays[0])
    if kinds == ("sum",) or not blocks:
        return separately(kinds, *arrays)
    if len(kinds) == 1 and _drops_nan(kinds[0], arrays[0]):
        # Of several operands a reduction is never one of XLA's own.
        half = shape[0] // 2
        ends = (arrays[0][:half], arrays[0][half : 2 * half], arrays[0][2 * half :])
        parts = (*in_levels(kinds * 2, *ends[:2]), _reduced(kinds[0], ends[2]))
        return (jax.tree.reduce(merge_of(kinds[0]), parts),)
    whole = blocks * DEPTH * width
    heads = tuple(array[:whole].reshape(blocks, DEPTH, width, *shape[1:]) for array in arrays)
    starts = tuple(_start(kind, array.dtype) for kind, array in zip(kinds, arrays, strict=True))
    # Separate from here on: what is left is read from memory array by array, and XLA would make two levels one again.
    lanes = cast("tuple[Any, ...]", lax.optimization_barrier(lax.reduce(heads, starts, _all_merged(kinds), (1,))))
    return tuple(
        merge_of(kind)(_along_lanes(kind, lane), _reduced(kind, array[whole:]))
        for kind, lane, array in zip(kinds, lanes, arrays, strict=True)
    )


@reduce_together.defjvp
def _(kinds: tuple[Kind, ...], primals: Any, tangents: Any) -> Any:
    # Derivatives take the plain reductions: that of a sum transposes to a broadcast.
    values = reduce_together(kinds, *primals)
    return values, tuple(map(_change, kinds, primals, values, tangents))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def first_along(kind: Extremum, xs: Any) -> Any:
    """The extremum along the leading axis, which is not empty; at ties as `earlier`."""
    return reduce_together((kind,), xs)[0]


@first_along.defjvp
def _(kind: Extremum, primals: Any, tangents: Any) -> Any:
    (xs,), (change,) = primals, tangents
    value = first_along(kind, xs)
    first = jnp.argmax(attains(xs, value), axis=0)
    moved = jnp.take_along_axis(change, first[None], axis=0, mode="promise_in_bounds")[0]
    return value, jnp.where(is_identity(kind, value), 0, moved).astype(value.dtype)


def greatest(*arrays: Any) -> tuple[Any, ...]:
    """Find the maxima of two arrays or more along their second axes; NaN wins. They have no derivative.

    Args:
      arrays: real, all `(n, m, ...)`. Of several operands a reduction is never one of XLA's own, which drop NaN.

    Returns:
      `(n, ...)` each.
    """
    starts = tuple(_start("max", array.dtype) for array in arrays)
    return cast("tuple[Any, ...]", lax.reduce(arrays, starts, _all_greater, (1,)))


def merge_of(kind: Kind) -> Callable[[Any, Any], Any]:
    """The operation of two arrays, entry by entry; NaN wins in maximum and minimum."""
    return {"sum": lax.add, "max": lax.max, "min": lax.min}[kind]


def _drops_nan(kind: Kind, array: Any) -> bool:
    """Whether XLA may reduce an array by a kernel of its own in which NaN does not win."""
    return kind != "sum" and jnp.issubdtype(array.dtype, jnp.floating)


@cache
def _all_merged(kinds: tuple[Kind, ...]) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]:
    """The operation of several arrays at once: the same function again, as JAX keeps each that it has reduced by."""
    merges = [merge_of(kind) for kind in kinds]

    def merge(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(each(a, b) for each, a, b in zip(merges, left, right, strict=True))

    return merge


def _all_greater(left: Any, right: Any) -> Any:
    return tuple(map(lax.max, left, right))


# The same as a maximum and a minimum, and nothing that XLA knows.


def _greater(a: Any, b: Any) -> Any:
    return lax.select(lax.bitwise_or(lax.ge(a, b), lax.ne(a, a)), a, b)


def _less(a: Any, b: Any) -> Any:
    return lax.select(lax.bitwise_or(lax.le(a, b), lax.ne(a, a)), a, b)


def _start(kind: Kind, dtype: Any) -> Any:
    return jnp.asarray(0 if kind == "sum" else extreme_of(dtype, -1 if kind == "max" else 1), dtype)


def _plain(kind: Kind, array: Any) -> Any:
    if kind == "sum":
        return jnp.sum(array, axis=0, dtype=array.dtype)
    return (jnp.max if kind == "max" else jnp.min)(array, axis=0, initial=_start(kind, array.dtype))


def _along_lanes(kind: Kind, lanes: Any) -> Any:
    return in_levels((kind,), lanes.reshape(lanes.shape[0] * lanes.shape[1], *lanes.shape[2:]))[0]


def _reduced(kind: Kind, array: Any) -> Any:
    if not _drops_nan(kind, array):
        return _plain(kind, array)
    return lax.reduce(array, _start(kind, array.dtype), _greater if kind == "max" else _less, (0,))


def _change(kind: Kind, primal: Any, value: Any, tangent: Any) -> Any:
    if kind == "sum" or not is_smooth(primal):
        return jax.jvp(partial(_plain, kind), (primal,), (tangent,))[1]
    # Equal shares of all that attain the extremum; JAX's own rule knows no NaN.
    is_there = attains(primal, value)
    count = jnp.maximum(jnp.sum(is_there, axis=0), 1).astype(value.dtype)
    return jnp.sum(jnp.where(is_there, tangent, 0), axis=0, dtype=value.dtype) / count
