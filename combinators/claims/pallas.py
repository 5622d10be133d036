"""Pallas kernels, which are for other hardware than that on which kernels are asked: run by its interpreter."""

from __future__ import annotations

from typing import Any

from combinators.declared.runnable import PALLAS
from combinators.kernels.jaxprs import is_program, programs_inside


def interpreting(program: Any) -> Any:
    """A closed jaxpr whose Pallas kernels are interpreted, wherever they stand in it."""
    if not _is_inside(program.jaxpr):
        return program  # the very same: what it chooses is watched by its equations
    return program.replace(jaxpr=_interpreting(program.jaxpr))


def _is_inside(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name == PALLAS
        or any(_is_inside(getattr(each, "jaxpr", each)) for each in programs_inside(equation))
        for equation in jaxpr.eqns
    )


def _interpreting(jaxpr: Any) -> Any:
    equations = [equation.replace(params=_params(equation)) for equation in jaxpr.eqns]
    return jaxpr.replace(eqns=equations) if jaxpr.eqns else jaxpr


def _params(equation: Any) -> dict[str, Any]:
    if equation.primitive.name == PALLAS:
        return {**equation.params, "interpret": True}
    return {key: _inside(value) for key, value in equation.params.items()}


def _inside(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_inside, value)) if any(map(is_program, value)) else value
    if not is_program(value):
        return value
    return interpreting(value) if hasattr(value, "jaxpr") else _interpreting(value)
