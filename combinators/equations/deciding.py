"""Equations that take one of several numbers, or of the pieces of a function, by what they are given: choices of data.

`jnp.where(s > 3, s, 3)` is `jnp.maximum(s, 3)`, and `jnp.floor(s)` is another constant from each whole number on. So
not comparisons alone choose without a `cond`: what takes the larger of two, a sign, a whole number, a place or an order
does so as well, and so does what is flat on one side: `jax.nn.sigmoid(s - 1e6)` is zero of all usual numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.kernels.jaxprs import programs_inside

_FLOATS = 2


def decides(equation: Any) -> bool:
    """Whether an equation chooses by the numbers that it is given."""
    name = equation.primitive.name
    if name not in _CHOSEN or _asks_whether_it_is_a_number(equation):
        return False
    given, made = equation.invars[0].aval, equation.outvars[0].aval
    if name in ("reduce", "reduce_window"):
        return any(_chooses(inner) for inner in programs_inside(equation))
    if name == "gather":
        # What is looked up beyond the end in any other way is no number.
        return equation.params["mode"] == lax.GatherScatterMode.CLIP
    if name == "convert_element_type":
        return _rank(given.dtype) > _rank(made.dtype)
    if name in _ALONG:
        return given.size > made.size
    if name == "div":
        return _rank(given.dtype) < _FLOATS
    return name != "abs" or not jnp.issubdtype(given.dtype, jnp.complexfloating)


def _asks_whether_it_is_a_number(equation: Any) -> bool:
    """As `jnp.isnan` does: nothing is judged that is none, and numbers choose nothing there."""
    return equation.primitive.name in ("eq", "ne") and equation.invars[0] is equation.invars[1]


def turns_only(equation: Any) -> bool:
    """Whether what it gives comes to the same where it takes the other one: no step, but a kink."""
    return equation.primitive.name in _KINKS


def compares(equation: Any) -> bool:
    """Whether an equation holds the numbers that it is given to each other."""
    return equation.primitive.name in _COMPARISONS


def chosen_by(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """What it chose: an array that is another one where it takes another of them.

    Args:
      equation: one that decides.
      operands: that it was given, in NumPy.
      results: that it gave.
    """
    return _CHOSEN[equation.primitive.name](equation, operands, results)


def _chooses(program: Any) -> bool:
    return any(
        decides(each) or any(map(_chooses, programs_inside(each))) for each in getattr(program, "jaxpr", program).eqns
    )


def _rank(dtype: Any) -> int:
    """By how much a kind of numbers tells apart: truths, whole numbers, all others."""
    return 0 if jnp.issubdtype(dtype, jnp.bool_) else 1 if jnp.issubdtype(dtype, jnp.integer) else _FLOATS


def _given(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del equation, operands
    # What is no number is the same as itself.
    found = np.asarray(results[-1])
    return found if found.dtype == bool else np.nan_to_num(found.astype(np.float64))


def _larger(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del equation, results
    return np.asarray(operands[0]) > np.asarray(operands[1])


def _within(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del equation, results
    low, number, high = map(np.asarray, operands)
    return (number > low).astype(np.int8) + (number > high)


def _below(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del equation, results
    return np.asarray(operands[0]) < 0


def _above(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del equation, results
    return np.real(operands[0]) > 0


def _times(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del equation
    number, by, rest = (np.asarray(each, np.float64) for each in (*operands, *results))
    return np.nan_to_num(np.round((number - rest) / by))


def _place(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del results
    array, axes = np.asarray(operands[0]), equation.params["axes"]
    lying = np.moveaxis(array, axes, range(len(axes))).reshape(math.prod(array.shape[each] for each in axes), -1)
    return (lying.argmax if "max" in equation.primitive.name else lying.argmin)(0) if lying.size else lying


def _order(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del results
    return np.argsort(np.asarray(operands[0]), axis=equation.params["dimension"], kind="stable")


def _stands(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    del equation
    return np.asarray(operands[0]) == np.asarray(results[0])


def _first(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Whether it took what comes first, of all cells that it reduces or of each window."""
    array, params = np.asarray(operands[0]), equation.params
    if equation.primitive.name == "reduce":
        dims = params["dimensions"]
        first = array[tuple(slice(0, 1) if axis in dims else slice(None) for axis in range(array.ndim))]
        return np.squeeze(first, dims) == np.asarray(results[0]) if first.size else first
    steps, shape = params["window_strides"], np.asarray(results[0]).shape
    wide = np.pad(array, [(max(low, 0), max(high, 0)) for low, high in params["padding"]], constant_values=0)
    at = np.ix_(
        *(
            np.minimum(np.arange(count) * step, size - 1)
            for count, step, size in zip(shape, steps, wide.shape, strict=True)
        )
    )
    return wide[at] == np.asarray(results[0]) if wide.size else wide


def _outside(equation: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Which indices lie beyond what they look up, and are moved to its end."""
    del results
    array, places, params = np.asarray(operands[0]), np.asarray(operands[1]), equation.params
    starts = params["dimension_numbers"].start_index_map
    most = [array.shape[axis] - params["slice_sizes"][axis] for axis in starts]
    return (places > np.asarray(most, np.int64)).astype(np.int8) - (places < 0)


_TRUTHS = ("eq", "eq_to", "ge", "gt", "le", "le_to", "lt", "lt_to", "ne")
_COMPARISONS = frozenset((*_TRUTHS, "clamp", "max", "min"))
_KINKS_NAMES = """
    abs clamp cummax cummin max min reduce_max reduce_min reduce_window_max reduce_window_min scatter-max scatter-min
"""
_KINKS = frozenset(_KINKS_NAMES.split())
# Of one cell nothing is taken.
_ALONG = ("argmax", "argmin", "reduce_max", "reduce_min")
_CHOSEN: dict[str, Callable[[Any, Sequence[Any], Sequence[Any]], Any]] = {
    **dict.fromkeys(_TRUTHS, _given),
    **dict.fromkeys(("argmax", "argmin", "ceil", "clz", "convert_element_type", "div", "floor"), _given),
    **dict.fromkeys(("round", "shift_right_arithmetic", "shift_right_logical", "sign"), _given),
    **dict.fromkeys(("approx_top_k", "top_k"), _given),
    **dict.fromkeys(("reduce", "reduce_window", "reduce_window_max", "reduce_window_min"), _first),
    **dict.fromkeys(("scatter-max", "scatter-min"), _stands),
    **dict.fromkeys(("max", "min"), _larger),
    **dict.fromkeys(("reduce_max", "reduce_min"), _place),
    **dict.fromkeys(("cummax", "cummin"), _stands),
    **dict.fromkeys(("atan", "atan2", "erf", "erfc", "logistic", "tanh"), _above),
    "abs": _below,
    "clamp": _within,
    "gather": _outside,
    "rem": _times,
    "sort": _order,
}
