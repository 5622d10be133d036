"""Comparisons that choose nothing: where two are equal, one is taken in the place of the other.

`jnp.searchsorted` writes 0 for what equals 0, and NaN for what is none, so that both have one form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from combinators.declared.numbers import number_of
from combinators.kernels.jaxprs import is_literal


def keeping(jaxpr: Any) -> set[int]:
    """The comparisons of an open jaxpr by which values are replaced with what they equal alone, by identity."""
    made = {out: equation for equation in jaxpr.eqns for out in equation.outvars}
    found, lost = set[int](), {made.get(atom) for atom in jaxpr.outvars if not is_literal(atom)}
    for equation in jaxpr.eqns:
        for place, atom in enumerate(equation.invars):
            compared = None if is_literal(atom) else made.get(atom)
            if compared is None or compared.primitive.name not in ("eq", "ne"):
                continue
            if equation.primitive.name == "select_n" and place == 0 and _keeps(compared, equation.invars[1:], made):
                found.add(id(compared))
            else:
                lost.add(compared)
    return found - set(map(id, lost))


def _keeps(compared: Any, cases: Any, made: Mapping[Any, Any]) -> bool:
    value, other = compared.invars
    false, true = cases
    if not any(value is each for each in (false, _replaced(false, made))):
        return False
    number = _number(true, made)
    if compared.primitive.name == "ne":  # what is no number differs from itself
        return other is value and number is not None and math.isnan(number)
    return number is not None and number == _number(other, made)


def _replaced(atom: Any, made: Mapping[Any, Any]) -> Any:
    """The value that something is but for what equals it."""
    equation = None if is_literal(atom) else made.get(atom)
    if equation is None or equation.primitive.name != "select_n":
        return atom
    compared = made.get(equation.invars[0])
    is_kept = compared is not None and compared.primitive.name == "eq" and _keeps(compared, equation.invars[1:], made)
    return equation.invars[1] if is_kept else atom


def _number(atom: Any, made: Mapping[Any, Any]) -> float | None:
    """The number that all cells of a value are, if a program says it."""
    while not is_literal(atom):
        equation = made.get(atom)
        if equation is None or equation.primitive.name not in ("broadcast_in_dim", "convert_element_type"):
            return None
        atom = equation.invars[0]
    number = number_of(atom, {})
    return None if number is None else float(number)
