"""Of each cell by itself: arithmetic, comparisons, conversions, choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

Primitive = Callable[..., Any]


def _of(function: Callable[..., Any]) -> Primitive:
    return lambda aval, *operands: function(*operands)


def _of_reals(function: Callable[..., Any]) -> Primitive:
    return lambda aval, *operands: NotImplemented if any(map(np.iscomplexobj, operands)) else function(*operands)


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


_TOTAL = {"eq": "equal", "le": "less_equal", "lt": "less"}


def _in_total_order(compare: Callable[..., Any]) -> Primitive:
    """Compare in the order of searches and sorts, in which zeros have signs and what is no number has a place."""

    def run(aval: Any, x: Any, y: Any) -> Any:
        return NotImplemented if np.iscomplexobj(x) else compare(_ordered(x), _ordered(y))

    return run


def _ordered(x: Any) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


ELEMENTWISE: dict[str, Primitive] = {
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
            "erf": np.frompyfunc(math.erf, 1, 1),
            "erfc": np.frompyfunc(math.erfc, 1, 1),
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
    **{
        name: _of_reals(function)
        for name, function in {"atan2": np.arctan2, "logistic": lambda x: 1 / (1 + np.exp(-x)), "pow": np.power}.items()
    },
    **{f"{name}_to": _in_total_order(getattr(np, long)) for name, long in _TOTAL.items()},
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "shift_right_logical": _shift_right_logical,
    "integer_pow": _integer_pow,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "reduce_precision": _reduce_precision,
    "select_n": _select_n,
    "clamp": _clamp,
}
