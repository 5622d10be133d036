"""Between which numbers whole numbers of a program lie, whatever it is given: places that it finds, and counts.

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


def bounds_of_number(value: Any) -> Bounds:
    """Those of a number that a program says."""
    return (float(value), float(value)) if np.ndim(value) == 0 and _is_counted(np.result_type(value)) else ANY


def bounds_of(equation: Any, given: Sequence[Bounds]) -> list[Bounds]:
    """Those of the results of an equation; `ANY` where they are not known, and of floats.

    Args:
      equation: of a jaxpr.
      given: the bounds of its operands.
    """
    name, avals = equation.primitive.name, [out.aval for out in equation.outvars]
    found = _found(name, equation, given)
    return [_held(each, aval) for each, aval in zip(found or [ANY] * len(avals), avals, strict=True)]


def is_decided(equation: Any, given: Sequence[Bounds]) -> bool:
    """Whether a comparison is the same of all numbers within bounds."""
    (low, high), (least, most) = given
    if high < least or low > most:
        return True
    name = equation.primitive.name
    return (name in ("le", "gt") and high <= least) or (name in ("lt", "ge") and low >= most)


def _found(name: str, equation: Any, given: Sequence[Bounds]) -> list[Bounds] | None:
    if name == "iota":
        return [(0, equation.params["shape"][equation.params["dimension"]] - 1)]
    if name in ("argmax", "argmin"):
        return [(0, math.prod(equation.invars[0].aval.shape[axis] for axis in equation.params["axes"]) - 1)]
    if name == "top_k":
        return [given[0], (0, equation.invars[0].aval.shape[-1] - 1)]
    if name == "sort":
        return list(given)
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
    if dtype is None or not _is_counted(dtype):
        return ANY
    least, most = (0, 1) if _is_truth(dtype) else (int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max))
    return bounds if least <= bounds[0] <= bounds[1] <= most else (least, most)


def _is_counted(dtype: Any) -> bool:
    return _is_truth(dtype) or jnp.issubdtype(dtype, jnp.integer)


def _is_truth(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.bool_))
