"""Which kernels have finite slopes, and which only where what several rows share is finite: read off their programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.kernels.jaxprs import WRAPPERS, is_literal, programs_inside

_MOVED = (
    "broadcast_in_dim concatenate copy dynamic_slice dynamic_update_slice expand_dims gather iota pad reshape rev slice"
    " split squeeze stack tile transpose"
)
_COMPUTED = (
    "abs add add_any and ceil clamp convert_element_type cos eq erf floor ge gt imag le logistic lt max min mul ne neg"
    " not or real reduce_precision round select_n sign sin square stop_gradient sub tanh xor"
)
_SUMMED = (
    "argmax argmin conv_general_dilated cummax cummin cumsum dot_general reduce_and reduce_max reduce_min reduce_or"
    " reduce_sum reduce_window_max reduce_window_min reduce_window_sum"
)
_LEVEL = frozenset(f"{_MOVED} {_COMPUTED} {_SUMMED}".split())
"""Primitives with a finite slope wherever their operands are finite."""
_REAL = frozenset(("cos", "logistic", "sin", "tanh"))
"""Of them those that are bounded for real numbers alone: complex ones meet poles, or exponential growth."""
_PRODUCTS = frozenset(("conv_general_dilated", "dot_general", "integer_pow", "mul", "square"))
_ORDINARY = 1e6
"""What the product of two numbers may be in a program that does not overflow."""
_AROUND = frozenset((*WRAPPERS, "cond", "scan"))


def is_level(program: Any, *, copies: bool = False) -> bool:
    """Whether no slope of a program is infinite where its operands are finite, as far as it tells.

    Infinite constants and products that overflow make operands of other primitives infinite, so such programs are not.

    Args:
      program: a jaxpr.
      copies: whether it is asked of copies of rows, whose products overflow where those of the rows do.
    """
    constants: Sequence[Any] = getattr(program, "consts", ())
    equations = getattr(program, "jaxpr", program).eqns
    return all(map(_is_finite, constants)) and all(_is_level_equation(equation, copies) for equation in equations)


def _is_level_equation(equation: Any, copies: bool) -> bool:
    name, literals = equation.primitive.name, [atom.val for atom in equation.invars if is_literal(atom)]
    if not all(map(_is_finite, literals)):
        return False
    if name in _AROUND:
        return all(is_level(inner, copies=copies) for inner in programs_inside(equation))
    if name == "div":
        return is_literal(equation.invars[1]) and bool(np.all(np.asarray(literals[-1]) != 0))
    if name == "gather" and equation.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP:
        # Indices made of padding may lie outside, where the program has none that does.
        fill = equation.params["fill_value"]
        return fill is not None and _is_finite(fill)
    if name in _REAL and any(jnp.issubdtype(atom.aval.dtype, jnp.complexfloating) for atom in equation.outvars):
        return False
    if name in _PRODUCTS and not literals and not copies and any(_overflows(a.aval.dtype) for a in equation.outvars):
        return False
    return name in _LEVEL or (name == "integer_pow" and equation.params["y"] > 0)


def _is_finite(value: Any) -> bool:
    """Whether a constant is known to hold no infinity and no NaN, times which a cotangent of zero is NaN."""
    if not jnp.issubdtype(jnp.result_type(value), jnp.inexact):
        return True
    try:
        return bool(np.isfinite(np.asarray(value)).all())
    except (TypeError, RuntimeError):
        # It is traced, or lies on devices that are not here.
        return False


def _overflows(dtype: Any) -> bool:
    """Whether products of ordinary numbers may be infinite, as in float16."""
    return jnp.issubdtype(dtype, jnp.inexact) and float(jnp.finfo(dtype).max) < _ORDINARY


def multiplies(program: Any, shared: Sequence[bool]) -> bool:
    """Whether some product in a level program has two factors that depend on operands that several rows share.

    The slope of such a product is infinite wherever what is shared is. Other products have a factor of a row alone.

    Args:
      program: a jaxpr.
      shared: of its operands, whether several rows have them in common.
    """
    jaxpr = getattr(program, "jaxpr", program)
    reached = {variable for variable, common in zip(jaxpr.invars, shared, strict=True) if common}
    for equation in jaxpr.eqns:
        touched = [not is_literal(atom) and atom in reached for atom in equation.invars]
        if not any(touched):
            continue
        name, inside = equation.primitive.name, list(programs_inside(equation))
        if inside:
            exact = name in WRAPPERS
            given = [touched if exact else [True] * len(getattr(inner, "jaxpr", inner).invars) for inner in inside]
            if any(multiplies(inner, each) for inner, each in zip(inside, given, strict=True)):
                return True
        elif name in _PRODUCTS and (sum(touched) > 1 or len(equation.invars) == 1):
            return True
        reached.update(equation.outvars)
    return False
