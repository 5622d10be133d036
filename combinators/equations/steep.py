"""Programs whose slope may be infinite: an exact zero that comes back to them is NaN, and not nothing.

They are read off their equations: a root, a logarithm, a quotient, a power below one, wherever it stands, or behind
what the program folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from combinators.kernels.jaxprs import WRAPPERS, WRITTEN, is_literal, is_written, programs_inside

_POLES = """
    acos acosh asin atan2 atanh cbrt cholesky digamma div eig eigh erf_inv householder_product igamma igammac lgamma log
    log1p lu polygamma pow qr regularized_incomplete_beta rsqrt sqrt svd triangular_solve
"""
_STEEP = frozenset(_POLES.split())
"""Primitives whose slope may be infinite, or whose result, at a finite number."""
_FOLDS = """
    conv_general_dilated cummax cummin cumprod cumsum dot_general dynamic_slice gather reduce reduce_max reduce_min
    reduce_prod reduce_sum reduce_window reduce_window_max reduce_window_min reduce_window_sum rev scan slice sort top_k
    while
"""
_FOLDING = frozenset(_FOLDS.split())
"""Primitives that put cells together, and those that take some of them, of which others are made."""


def is_steep(jaxpr: Any) -> bool:
    """Whether the slope of a program may be infinite at an argument."""
    return _look(jaxpr, [True] * len(jaxpr.invars))[0]


def is_steep_behind_folds(jaxpr: Any) -> bool:
    """Whether it may be at something that the program has folded."""
    return _look(jaxpr, [False] * len(jaxpr.invars))[0]


def _look(jaxpr: Any, given: Sequence[bool]) -> tuple[bool, list[bool]]:
    """Whether it may be at what comes of `given` arguments, or is folded, and which results come of these."""
    found = {variable for variable, each in zip(jaxpr.invars, given, strict=True) if each}
    for equation in jaxpr.eqns:
        name, touched = equation.primitive.name, [not is_literal(atom) and atom in found for atom in equation.invars]
        inside = [getattr(inner, "jaxpr", inner) for inner in programs_inside(equation)]
        if name in WRAPPERS and len(inside) == 1:
            steep, results = _look(inside[0], touched)
        else:
            # What a loop carries has been folded, and so has what a reduction merges.
            every = [[any(touched) or name in _FOLDING] * len(inner.invars) for inner in inside]
            steep = any(_look(inner, each)[0] for inner, each in zip(inside, every, strict=True))
            steep = steep or (any(touched) and _may_be_infinite(equation))
            results = [any(touched) or name in _FOLDING] * len(equation.outvars)
        if steep:
            return True, []
        found.update(out for out, each in zip(equation.outvars, results, strict=True) if each)
    return False, [not is_literal(atom) and atom in found for atom in jaxpr.outvars]


def _may_be_infinite(equation: Any) -> bool:
    name = equation.primitive.name
    if name == "integer_pow":
        return equation.params["y"] < 0
    # A tangent that somebody wrote stands in no program yet. (One that is pulled back alone could be pushed no more.)
    return (name in _STEEP and not _is_by_number(equation)) or (is_written(equation) and name not in WRITTEN)


def _is_by_number(equation: Any) -> bool:
    """Whether it is a quotient by a number that stands in the program."""
    divisor = equation.invars[-1]
    return equation.primitive.name == "div" and is_literal(divisor) and bool(np.all(np.asarray(divisor.val) != 0))
