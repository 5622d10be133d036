"""Results of a program that are its inputs, passed on unchanged through calls and loops."""

from __future__ import annotations

from typing import Any

from combinators.kernels.jaxprs import WRAPPERS, is_literal, programs_inside, scan_parts

_CALLS = frozenset({*WRAPPERS, "checkpoint", "remat", "remat2", "remat_opt"})
_WORDS = frozenset({"random_wrap", "random_unwrap"})


def origin(jaxpr: Any, result: Any) -> int | None:
    """The position of the input that a result of a jaxpr is; None where it is computed."""
    made = {out: (equation, at) for equation in jaxpr.eqns for at, out in enumerate(equation.outvars)}
    atom = result
    while not is_literal(atom) and atom in made:
        equation, at = made[atom]
        found = _passed(equation, at)
        if found is None:
            return None
        atom = equation.invars[found]
    return None if is_literal(atom) or atom not in jaxpr.invars else jaxpr.invars.index(atom)


def _passed(equation: Any, at: int) -> int | None:
    """The operand of an equation that its result number `at` is."""
    name = equation.primitive.name
    if name in _WORDS:
        return 0
    if name not in _CALLS and name != "scan":
        return None
    inner = next(programs_inside(equation))
    inner = getattr(inner, "jaxpr", inner)
    found = origin(inner, inner.outvars[at])
    if found is None or name != "scan":
        return found
    constants, carries = scan_parts(equation)
    is_passed = found == constants + at if at < carries else found >= constants + carries
    return found if is_passed else None
