"""Whether a function is linear in some of its arguments: read off its jaxpr, nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from combinators.declared.backward import backward
from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.jaxprs import WRAPPERS, is_literal, programs_inside

_CALLS = frozenset((*WRAPPERS, "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"))
_FIRST = (
    "broadcast_in_dim convert_element_type copy cumsum div dynamic_slice expand_dims gather imag neg pcast psum"
    " psum_invariant pvary real reduce_precision reduce_sum reshape rev slice squeeze transpose"
)
_TOGETHER = "add add_any concatenate dynamic_update_slice pad scatter-add select_n sub"
_MOVED, _ADDED = frozenset(_FIRST.split()), frozenset(_TOGETHER.split())
"""Linear in their first operand; in all that they move or add up, together."""
_PRODUCTS = frozenset(("conv_general_dilated", "dot_general", "mul"))
_STILL, _MOVES, _ZERO = "still", "moves", "zero"


def pulls_linearly(kernel: Callable[..., Any], kinds: Sequence[Any]) -> bool:
    """Whether the derivative of a kernel is linear in what it pulls back, as far as its program tells.

    Those that JAX knows are; one that somebody wrote need not be, and its program may not tell.

    Args:
      kernel: arrays to a pytree of arrays.
      kinds: types of the arrays.
    """
    program, count = backward(kernel, kinds)
    states = _through(program.jaxpr, [_STILL] * len(kinds) + [_MOVES] * count)
    return states is not None and all(state != _STILL for state in states)


def _through(jaxpr: Any, given: Sequence[str]) -> list[str] | None:
    """Of each result whether it moves linearly, is zero, or stands still; None where something is not linear."""
    states: dict[Any, str] = dict(zip(jaxpr.invars, given, strict=True))

    def of(atom: Any) -> str:
        if is_literal(atom):
            return _STILL if bool(atom.val != 0) else _ZERO
        return states.get(atom, _STILL)

    for equation in jaxpr.eqns:
        found = _equation(equation, [of(atom) for atom in equation.invars])
        if found is None:
            return None
        states.update(zip(equation.outvars, found, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, states: list[str]) -> list[str] | None:
    name = equation.primitive.name
    if _MOVES not in states:
        is_zero = name in ("broadcast_in_dim", "reshape", "convert_element_type") and states[0] == _ZERO
        return [_ZERO if is_zero else _STILL] * len(equation.outvars)
    if name in _CALLS:
        inner = next(programs_inside(equation))
        return _through(getattr(inner, "jaxpr", inner), states)
    if name in _ADDED:
        smooth = [s for s, atom in zip(states, equation.invars, strict=True) if is_inexact(atom.aval.dtype)]
        fits = _STILL not in smooth and (name != "select_n" or states[0] != _MOVES)
    elif name in _PRODUCTS:
        fits = states.count(_MOVES) == 1
    else:
        # What makes whole numbers of floats loses what lies between them.
        are_floats = all(is_inexact(out.aval.dtype) for out in equation.outvars)
        fits = are_floats and name in _MOVED and _MOVES not in states[1:]
    return [_MOVES] * len(equation.outvars) if fits else None
