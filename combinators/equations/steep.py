"""Programs whose slope may be infinite: an exact zero that comes back to them is NaN, and not nothing.

They are read off their equations: a root, a logarithm, a quotient, an angle, a power, wherever it stands, or behind
what the program folds. What is listed is what has no pole, and what keeps cells apart: a primitive that nobody here
knows may have one, and puts cells together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from combinators.equations.primitives import PRIMITIVES
from combinators.kernels.elementwise import CALLS, CELLWISE
from combinators.kernels.jaxprs import WRITTEN, is_literal, is_written, programs_inside

_POLES = """
    acos acosh asin atan2 atanh cbrt digamma div erf_inv igamma igamma_grad_a igammac lgamma log log1p log2 polygamma
    pow regularized_incomplete_beta rsqrt sqrt zeta
"""
"""Primitives whose slope may be infinite, or whose result, at a finite number."""
_OTHERS = """
    approx_top_k conv_general_dilated expand_dims ragged_dot_general random_bits random_wrap reduce reduce_window
    reduce_window_max reduce_window_min reduce_window_sum select_and_gather_add select_and_scatter_add threefry2x32 tile
    top_k unstack scan while cond
"""
"""Primitives without a pole that NumPy has no entry for, and those that hold programs, which are looked into."""
_FLAT = (PRIMITIVES.keys() | CELLWISE | CALLS | frozenset(_OTHERS.split())) - frozenset(_POLES.split())
_APART = CELLWISE | {"broadcast_in_dim", "expand_dims", "iota", "reshape", "squeeze", "transpose"}
"""Primitives of which each cell is made of one cell of an operand; others put cells together, or take some of them."""


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
        called = touched[1:] if name == "cond" else touched
        sides = len(called), len(equation.outvars)
        if name in CALLS and {(len(inner.invars), len(inner.outvars)) for inner in inside} == {sides}:
            looks = [_look(inner, called) for inner in inside]
            # What a number chose that has been folded is up to that, too.
            chosen = name == "cond" and touched[0]
            results = [chosen or any(each) for each in zip(*(found for _, found in looks), strict=False)]
        else:
            # What a loop carries has been folded, and so has what a reduction merges.
            folds = any(touched) or name not in _APART
            looks = [_look(inner, [folds] * len(inner.invars)) for inner in inside]
            results = [folds] * len(equation.outvars)
        steep = any(each for each, _ in looks) or (any(touched) and _may_be_infinite(equation))
        if steep:
            return True, []
        found.update(out for out, each in zip(equation.outvars, results, strict=True) if each)
    return False, [not is_literal(atom) and atom in found for atom in jaxpr.outvars]


def _may_be_infinite(equation: Any) -> bool:
    name = equation.primitive.name
    if name == "integer_pow":
        return equation.params["y"] < 0
    # A tangent that somebody wrote stands in no program yet. (One that is pulled back alone could be pushed no more.)
    return (name not in _FLAT and not _is_by_number(equation)) or (is_written(equation) and name not in WRITTEN)


def _is_by_number(equation: Any) -> bool:
    """Whether it is a quotient by a number that stands in the program."""
    divisor = equation.invars[-1]
    return equation.primitive.name == "div" and is_literal(divisor) and bool(np.all(np.asarray(divisor.val) != 0))
