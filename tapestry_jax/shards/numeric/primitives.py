"""JAX's primitives in NumPy: what one device computes, without a compiler.

Every function takes the type of its result, the operands, and the parameters of the equation but those of `NO_VALUE`:
it names all that it reads, so that none is ignored. Primitives without an entry, and what an entry does not say, which
gives `NotImplemented`, run in JAX, one by one, which compiles each of them once for every shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from tapestry_jax.shards.numeric.indexing import assign, dynamic_slice, dynamic_update_slice, gather, scatter

Primitive = Callable[..., Any]


NO_VALUE = frozenset(
    (
        *("accuracy", "indices_are_sorted", "unique_indices", "is_stable"),
        *("dtype", "new_dtype", "input_dtype", "index_dtype", "weak_type", "preferred_element_type"),
        *("shape", "new_sizes", "sharding", "out_sharding"),
    )
)
"""Parameters that no entry has to read: of the type of the result, of where it lies, and what is promised."""


def run_primitive(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of one equation; checks that they have the shapes that JAX expects."""
    avals = [variable.aval for variable in equation.outvars]
    if PRIMITIVES.get(equation.primitive.name) is _same:
        # Also random keys, of which JAX says outside of `shard_map` that they do not vary.
        return list(operands)
    # Typed random keys are arrays of JAX alone.
    if equation.primitive.name not in PRIMITIVES or not all(isinstance(each, _NUMPY) for each in operands):
        return _in_jax(equation, operands)
    found = in_numpy(equation, avals[0], operands)
    if found is NotImplemented:
        return _in_jax(equation, operands)
    results = found if equation.primitive.multiple_results else [found]
    return [_checked(equation, result, aval) for result, aval in zip(results, avals, strict=True)]


def in_numpy(equation: Any, aval: Any, operands: Sequence[Any], **others: Any) -> Any:
    """What the entry of an equation gives, with `others` for some of its parameters.

    Raises:
      TypeError: for a parameter that the entry does not read.
    """
    read = {name: value for name, value in equation.params.items() if name not in NO_VALUE}
    return PRIMITIVES[equation.primitive.name](aval, *operands, **{**read, **others})


_NUMPY = np.ndarray, np.generic


def _in_jax(equation: Any, operands: Sequence[Any]) -> list[Any]:
    found = equation.primitive.bind(*map(_to_jax, operands), **equation.params)
    results = list(found) if equation.primitive.multiple_results else [found]
    return [_from_jax(result) for result in results]


def _checked(equation: Any, result: Any, aval: Any) -> Any:
    array = np.asarray(result)
    if array.dtype != aval.dtype:
        array = array.astype(aval.dtype)
    assert array.shape == aval.shape, f"{equation.primitive.name} gave {array.shape}, not {aval.shape}: {equation}"
    return array


def _to_jax(operand: Any) -> Any:
    return jnp.asarray(operand) if isinstance(operand, np.ndarray) else operand


def _from_jax(result: Any) -> Any:
    # Typed random keys have no NumPy form.
    return result if jnp.issubdtype(result.dtype, jax.dtypes.extended) else np.asarray(result)


def _of(function: Callable[..., Any]) -> Primitive:
    return lambda aval, *operands: function(*operands)


def _of_reals(function: Callable[..., Any]) -> Primitive:
    return lambda aval, *operands: NotImplemented if any(map(np.iscomplexobj, operands)) else function(*operands)


def _same(aval: Any, operand: Any, **_: Any) -> Any:
    """Whatever the parameters say."""
    return operand


def _mul(aval: Any, x: Any, y: Any, *, out_dtype: Any) -> Any:
    return np.multiply(x, y) if out_dtype in (None, x.dtype) else NotImplemented


def _div(aval: Any, x: Any, y: Any) -> Any:
    if not np.issubdtype(x.dtype, np.integer):
        return np.divide(x, y)
    quotient = np.floor_divide(x, np.where(y == 0, 1, y))
    # Division of integers rounds towards zero.
    return np.where(y == 0, np.asarray(-1).astype(x.dtype), quotient + ((quotient < 0) & (quotient * y != x)))


def _rem(aval: Any, x: Any, y: Any) -> Any:
    # What is left of a division by zero is all of it.
    return np.fmod(x, y) if not np.issubdtype(x.dtype, np.integer) else np.where(y == 0, x, np.fmod(x, y + (y == 0)))


def _shift_right_arithmetic(aval: Any, x: Any, y: Any) -> Any:
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return np.right_shift(x.view(signed), y.view(signed)).view(x.dtype)


def _shift_right_logical(aval: Any, x: Any, y: Any) -> Any:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.right_shift(x.view(unsigned), y.astype(unsigned)).view(x.dtype)


def _integer_pow(aval: Any, x: Any, *, y: int) -> Any:
    return x**y if y >= 0 else 1 / x ** (-y)


def _convert(aval: Any, x: Any) -> Any:
    if np.iscomplexobj(x) and not np.issubdtype(aval.dtype, np.complexfloating):
        x = x.real
    if jnp.issubdtype(aval.dtype, jnp.integer) and jnp.issubdtype(x.dtype, jnp.floating):
        return _saturated(x.astype(np.float64), aval.dtype)
    return x.astype(aval.dtype)


def _saturated(x: Any, dtype: Any) -> Any:
    """As integers: the nearest of what is outside, 0 of what is no number. What NumPy gives there is open."""
    known = jnp.iinfo(dtype)
    inside = np.where((x > known.min) & (x < known.max), x, 0).astype(dtype)
    return np.where(x >= known.max, dtype.type(known.max), np.where(x <= known.min, dtype.type(known.min), inside))


def _bitcast(aval: Any, x: Any) -> Any:
    return np.ascontiguousarray(x).view(aval.dtype).reshape(aval.shape)


def _reduce_precision(aval: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    own = jnp.finfo(x.dtype)
    return x if (exponent_bits, mantissa_bits) == (own.nexp, own.nmant) else NotImplemented


def _broadcast_in_dim(aval: Any, x: Any, broadcast_dimensions: Sequence[int]) -> Any:
    shape = [1] * len(aval.shape)
    for axis, place in enumerate(broadcast_dimensions):
        shape[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(shape), aval.shape)


def _squeeze(aval: Any, x: Any, *, dimensions: Sequence[int]) -> Any:
    return x.reshape(aval.shape)


def _reshape(aval: Any, x: Any, dimensions: Sequence[int] | None = None) -> Any:
    return (x if dimensions is None else np.transpose(x, dimensions)).reshape(aval.shape)


def _transpose(aval: Any, x: Any, *, permutation: Sequence[int]) -> Any:
    return np.transpose(x, permutation)


def _rev(aval: Any, x: Any, *, dimensions: Sequence[int]) -> Any:
    return np.flip(x, tuple(dimensions))


def _concatenate(aval: Any, *xs: Any, dimension: int) -> Any:
    return np.concatenate(xs, dimension)


def _split(aval: Any, x: Any, *, sizes: Sequence[int], axis: int) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _pad(aval: Any, x: Any, value: Any, *, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    for axis, (low, high, interior) in enumerate(padding_config):
        if interior and x.shape[axis] > 1:
            shape = list(x.shape)
            shape[axis] += (x.shape[axis] - 1) * interior
            spread = np.full(shape, value, x.dtype)
            spread[(slice(None),) * axis + (slice(None, None, interior + 1),)] = x
            x = spread
        widths = [(0, 0)] * x.ndim
        widths[axis] = (max(low, 0), max(high, 0))
        x = np.pad(x, widths, constant_values=value)
        stop = x.shape[axis] + min(high, 0)
        x = x[(slice(None),) * axis + (slice(-min(low, 0), stop),)]
    return x


def _slice(aval: Any, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or (1,) * x.ndim
    return x[tuple(slice(*each) for each in zip(start_indices, limit_indices, steps, strict=True))]


def _iota(aval: Any, dimension: int) -> Any:
    shape = [1] * len(aval.shape)
    shape[dimension] = aval.shape[dimension]
    return np.broadcast_to(np.arange(aval.shape[dimension]).astype(aval.dtype).reshape(shape), aval.shape)


def _select_n(aval: Any, which: Any, *cases: Any) -> Any:
    if len(cases) == 1:
        return cases[0]
    if which.dtype == np.bool_:
        return np.where(which, cases[1], cases[0])
    # Before the first is the first, behind the last the last.
    near = np.clip(which, 0, len(cases) - 1)
    return np.select([np.broadcast_to(near == i, aval.shape) for i in range(len(cases))], cases)


def _clamp(aval: Any, low: Any, x: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


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
    return np.matmul(left, right).reshape(aval.shape)


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


def _optimization_barrier(aval: Any, *operands: Any) -> Any:
    return list(operands)


def _later(aval: Any, *operands: Any, count: int) -> Any:
    del count
    return list(operands)


PRIMITIVES: dict[str, Primitive] = {
    **{
        name: _of(function)
        for name, function in {
            "neg": np.negative,
            "sign": np.sign,
            "floor": np.floor,
            "ceil": np.ceil,
            "is_finite": np.isfinite,
            "exp": np.exp,
            "exp2": np.exp2,
            "log": np.log,
            "expm1": np.expm1,
            "log1p": np.log1p,
            "tan": np.tan,
            "tanh": np.tanh,
            "sin": np.sin,
            "cos": np.cos,
            "sinh": np.sinh,
            "cosh": np.cosh,
            "atan": np.arctan,
            "abs": np.abs,
            "sqrt": np.sqrt,
            "rsqrt": lambda x: 1 / np.sqrt(x),
            "square": np.square,
            "not": np.invert,
            "erf": special.erf,
            "erfc": special.erfc,
            "real": np.real,
            "imag": np.imag,
            "conj": np.conj,
            "add": np.add,
            "add_any": np.add,
            "sub": np.subtract,
            "max": np.maximum,
            "min": np.minimum,
            "eq": np.equal,
            "ne": np.not_equal,
            "ge": np.greater_equal,
            "gt": np.greater,
            "le": np.less_equal,
            "lt": np.less,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "shift_left": np.left_shift,
        }.items()
    },
    **dict.fromkeys(("copy", "stop_gradient", "name", "sharding_constraint", "reshard", "pvary"), _same),
    **{
        name: _of_reals(function)
        for name, function in {"atan2": np.arctan2, "logistic": special.expit, "pow": np.power}.items()
    },
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "shift_right_logical": _shift_right_logical,
    "integer_pow": _integer_pow,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "reduce_precision": _reduce_precision,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "rev": _rev,
    "concatenate": _concatenate,
    "split": _split,
    "pad": _pad,
    "slice": _slice,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "iota": _iota,
    "select_n": _select_n,
    "clamp": _clamp,
    "dot_general": _dot_general,
    "gather": gather,
    "scatter": scatter(assign),
    "scatter-add": scatter(np.add.at),
    "scatter-mul": scatter(np.multiply.at),
    "scatter-min": scatter(np.minimum.at),
    "scatter-max": scatter(np.maximum.at),
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
    "optimization_barrier": _optimization_barrier,
    "later": _later,
}
