"""Between which numbers those of a program lie, whatever it is given: places that it finds, counts, exponentials.

`x[jnp.argmax(x)]` asks whether a place is less than zero. It never is, so nothing is chosen there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

Bounds: TypeAlias = "tuple[float, float]"
"""The least number and the greatest."""

ANY: Bounds = (-math.inf, math.inf)
_KEEPING = """
    broadcast_in_dim convert_element_type copy cummax cummin dynamic_slice expand_dims reduce_max reduce_min reshape rev
    slice squeeze transpose
"""
_SUMS = ("cumsum", "reduce_sum")
_EXACT = (-math.inf, *range(-8, 9), math.inf)
_LYING: dict[str, Bounds] = {
    **dict.fromkeys(("cos", "erf", "sin", "tanh"), (-1, 1)),
    **dict.fromkeys(("abs", "exp", "exp2", "sqrt", "square"), (0, math.inf)),
    "logistic": (0, 1),
}
_SIGNS = ("abs", "convert_element_type", "sign")
_OF_TWO = ("eq", "ge", "gt", "le", "lt", "max", "min", "ne")


def bounds_of_number(value: Any) -> Bounds:
    """Those of a number that a program says."""
    return _held((float(value), float(value)), value) if np.ndim(value) == 0 and np.isrealobj(value) else ANY


def bounds_of(equation: Any, given: Sequence[Bounds]) -> list[Bounds]:
    """Those of the results of an equation; `ANY` where they are not known. What is no number lies between any.

    Args:
      equation: of a jaxpr.
      given: the bounds of its operands.
    """
    name, avals = equation.primitive.name, [out.aval for out in equation.outvars]
    found = _found(name, equation, given)
    return [_held(each, aval) for each, aval in zip(found or [ANY] * len(avals), avals, strict=True)]


def is_decided(equation: Any, given: Sequence[Bounds]) -> bool:
    """Whether what an equation chooses is the same of all numbers within bounds."""
    name, (low, high) = equation.primitive.name, given[0]
    if name in _SIGNS:
        by_sign = name != "convert_element_type" or _is_truth(equation.outvars[0].aval.dtype)
        return low == high or (by_sign and (low > 0 or high < 0)) or (name == "abs" and low >= 0)
    if name == "gather":
        numbers, shape = equation.params["dimension_numbers"], equation.invars[0].aval.shape
        most = min((shape[axis] - equation.params["slice_sizes"][axis] for axis in numbers.start_index_map), default=0)
        return given[1][0] >= 0 and given[1][1] <= most
    if name == "clamp":
        (_, least), (low, high), (most, _) = given
        return least <= low and high <= most
    if name not in _OF_TWO:
        return False
    least, most = given[1]
    # What is no number is neither less nor more, and the larger of two with any.
    if _is_counted(equation.invars[0].aval.dtype) or name not in ("ge", "gt", "le", "lt"):
        if high < least or low > most:
            return True
        return (name in ("le", "gt", "max", "min") and high <= least) or (
            name in ("lt", "ge", "max", "min") and low >= most
        )
    never = {"ge": high < least, "gt": high <= least, "le": low > most, "lt": low >= most}
    return never[name]


def _found(name: str, equation: Any, given: Sequence[Bounds]) -> list[Bounds] | None:
    if name == "iota":
        return [(0, equation.params["shape"][equation.params["dimension"]] - 1)]
    if name in ("argmax", "argmin"):
        return [(0, math.prod(equation.invars[0].aval.shape[axis] for axis in equation.params["axes"]) - 1)]
    if name == "top_k":
        return [given[0], (0, equation.invars[0].aval.shape[-1] - 1)]
    if name == "sort":
        return list(given)
    if name in _LYING:
        return [_LYING[name]]
    if name == "convert_element_type" and _is_counted(equation.outvars[0].aval.dtype):
        # What is no number becomes any; of what was clipped on both sides nobody asks for that.
        if not _is_counted(equation.invars[0].aval.dtype) and math.inf in map(abs, given[0]):
            return None
    if name in _KEEPING.split():
        # What is reduced of no cells is no number among those.
        return [given[0]] if math.prod(getattr(equation.invars[0].aval, "shape", ())) else None
    if name in ("select_n", "concatenate"):
        cases = given[1:] if name == "select_n" else given
        return [(min(low for low, _ in cases), max(high for _, high in cases))]
    if name in _SUMS:
        return [_summed(equation, *given[0])]
    if name in _TWO:
        return [_TWO[name](*given)]
    return None


def _summed(equation: Any, low: float, high: float) -> Bounds:
    axes = equation.params.get("axes", (equation.params.get("axis", 0),))
    cells = math.prod(equation.invars[0].aval.shape[axis] for axis in axes)
    return min(low, low * cells), max(high, high * cells)


_TWO: dict[str, Callable[[Bounds, Bounds], Bounds]] = {
    "add": lambda one, other: (one[0] + other[0], one[1] + other[1]),
    "sub": lambda one, other: (one[0] - other[1], one[1] - other[0]),
    "max": lambda one, other: (max(one[0], other[0]), max(one[1], other[1])),
    "min": lambda one, other: (min(one[0], other[0]), min(one[1], other[1])),
}


def _held(bounds: Bounds, aval: Any) -> Bounds:
    """As far as a dtype holds such numbers: what is greater begins again at the other end."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None and isinstance(aval, (bool, int, float)):
        dtype = np.result_type(aval)
    if dtype is None or not (_is_counted(dtype) or jnp.issubdtype(dtype, jnp.floating)):
        return ANY
    if not _is_counted(dtype):
        # Small whole numbers all floats have, so that none is rounded to their other side.
        low, high = (each if each in _EXACT else None for each in bounds)
        return -math.inf if low is None else low, math.inf if high is None else high
    least, most = (0, 1) if _is_truth(dtype) else (int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max))
    return bounds if least <= bounds[0] <= bounds[1] <= most else (least, most)


def _is_counted(dtype: Any) -> bool:
    return _is_truth(dtype) or jnp.issubdtype(dtype, jnp.integer)


def _is_truth(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.bool_))
