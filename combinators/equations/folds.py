"""Along axes: products, folds, prefixes, orders. Floats of two bytes are added up in four, as XLA does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.equations.elementwise import Primitive


def _dot_general(aval: Any, x: Any, y: Any, *, dimension_numbers: Any, precision: Any) -> Any:
    is_float = jnp.issubdtype(aval.dtype, jnp.inexact)
    # An algorithm that is asked for by name rounds as it says; so do floats that are added up as integers.
    if isinstance(precision, _ALGORITHMS) or jnp.issubdtype(x.dtype, jnp.inexact) > is_float:
        return NotImplemented
    (contract_x, contract_y), (batch_x, batch_y) = dimension_numbers
    free_x = [axis for axis in range(x.ndim) if axis not in (*contract_x, *batch_x)]
    free_y = [axis for axis in range(y.ndim) if axis not in (*contract_y, *batch_y)]
    wide = np.result_type(aval.dtype, np.float32) if is_float and aval.dtype.itemsize < 4 else aval.dtype
    folded = math.prod(x.shape[axis] for axis in contract_x)
    batch = [x.shape[axis] for axis in batch_x]
    rows = math.prod(x.shape[axis] for axis in free_x)
    columns = math.prod(y.shape[axis] for axis in free_y)
    left = np.transpose(x, (*batch_x, *free_x, *contract_x)).reshape((*batch, rows, folded)).astype(wide)
    right = np.transpose(y, (*batch_y, *contract_y, *free_y)).reshape((*batch, folded, columns)).astype(wide)
    product = _small_product(left, right) if not batch and rows * folded * columns <= _SMALL else np.matmul(left, right)
    return product.reshape(aval.shape)


_SMALL, _OF_ONE_THREAD = 2**24, 2**18


def _small_product(left: Any, right: Any) -> Any:
    """A few rows at a time, which BLAS multiplies on one thread.

    Products of a million numbers take it a thirtieth of the time so where other processes run beside: threads that wait
    for each other spin.
    """
    step = max(_OF_ONE_THREAD // max(right.size, 1), 1)
    found = np.empty((left.shape[0], right.shape[1]), left.dtype)
    for start in range(0, left.shape[0], step):
        np.matmul(left[start : start + step], right, out=found[start : start + step])
    return found


_ALGORITHMS = jax.lax.DotAlgorithm, jax.lax.DotAlgorithmPreset


def _reduce(function: Callable[..., Any], identity: Callable[[Any], Any]) -> Primitive:
    def run(aval: Any, x: Any, *, axes: Sequence[int]) -> Any:
        if x.size == 0:
            return np.full(aval.shape, identity(x.dtype), x.dtype)
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 and jnp.issubdtype(x.dtype, jnp.floating) else x
        return function(wide, axis=tuple(axes))

    return run


def _least(dtype: Any) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.inexact) else np.iinfo(dtype).min if dtype != np.bool_ else False


def _largest(dtype: Any) -> Any:
    return np.inf if jnp.issubdtype(dtype, jnp.inexact) else np.iinfo(dtype).max if dtype != np.bool_ else True


def _argument(function: Callable[..., Any]) -> Primitive:
    def run(aval: Any, x: Any, *, axes: Sequence[int]) -> Any:
        return function(x, axis=axes[0])

    return run


def _cumulative(function: Callable[..., Any]) -> Primitive:
    def run(aval: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        turned = np.flip(x, axis) if reverse else x
        found = function(turned, axis=axis, dtype=x.dtype)
        return np.flip(found, axis) if reverse else found

    return run


def _cumlogsumexp(aval: Any, x: Any, *, axis: int, reverse: bool) -> Any:
    if np.iscomplexobj(x):
        return NotImplemented
    return _cumulative(np.logaddexp.accumulate)(aval, x, axis=axis, reverse=reverse)


def _sort(aval: Any, *operands: Any, dimension: int, num_keys: int) -> Any:
    keys = [_comparable(key) for key in operands[:num_keys]]
    order = np.lexsort(keys[::-1], axis=dimension)
    return [np.take_along_axis(operand, order, dimension) for operand in operands]


def _comparable(key: Any) -> Any:
    """Zeros alike; where they stand NumPy knows what is no number of its own floats alone."""
    wide = key.astype(np.float32) if key.dtype.itemsize < 4 and jnp.issubdtype(key.dtype, jnp.floating) else key
    return np.where(wide == 0, np.zeros((), wide.dtype), wide)


FOLDS: dict[str, Primitive] = {
    "dot_general": _dot_general,
    "reduce_sum": _reduce(np.sum, lambda dtype: 0),
    "reduce_prod": _reduce(np.prod, lambda dtype: 1),
    "reduce_max": _reduce(np.max, _least),
    "reduce_min": _reduce(np.min, _largest),
    "reduce_and": _reduce(np.bitwise_and.reduce, lambda dtype: np.invert(np.zeros((), dtype))),
    "reduce_or": _reduce(np.bitwise_or.reduce, lambda dtype: 0),
    "reduce_xor": _reduce(np.bitwise_xor.reduce, lambda dtype: 0),
    "argmax": _argument(np.argmax),
    "argmin": _argument(np.argmin),
    "cumsum": _cumulative(np.add.accumulate),
    "cumprod": _cumulative(np.multiply.accumulate),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
    "cumlogsumexp": _cumlogsumexp,
    "sort": _sort,
}
