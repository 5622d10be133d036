"""Equations that are the same of fewer or more steps: equal but for the sizes that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from combinators.kernels.jaxprs import is_literal, is_program

Sizes = tuple[int, int]
"""How many steps the first equation is of, and the other."""


def are_alike(first: Any, other: Any, sizes: Sizes) -> bool:
    """Whether two equations have one primitive, and parameters that differ in the number of steps alone."""
    if first.primitive is not other.primitive or first.params.keys() != other.params.keys():
        return False
    return all(_alike(value, other.params[name], sizes) for name, value in first.params.items())


def same_literal(one: Any, other: Any) -> bool:
    """Whether two atoms are one number."""
    if not (is_literal(one) and is_literal(other)):
        return False
    left, right = np.asarray(one.val), np.asarray(other.val)
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


def _alike(one: Any, other: Any, sizes: Sizes) -> bool:
    if is_program(one) and is_program(other):
        return _programs(one, other, sizes)
    if isinstance(one, (tuple, list)) and type(one) is type(other):
        left, right = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
        # Sizes stand in shapes; a number by itself, such as an exponent, is what the function computes with.
        return len(left) == len(right) and all(
            _is_size(a, b, sizes) or _alike(a, b, sizes) for a, b in zip(left, right, strict=True)
        )
    # The rule of a derivative is traced each time; it was written in one place.
    told, again = (getattr(value, "debug_info", None) for value in (one, other))
    if told is not None and again is not None:
        return str(told) == str(again)
    return bool(one == other)


def _is_size(one: Any, other: Any, sizes: Sizes) -> bool:
    integers = isinstance(one, (int, np.integer)) and isinstance(other, (int, np.integer))
    return integers and (int(one), int(other)) == sizes


def _programs(one: Any, other: Any, sizes: Sizes) -> bool:
    left, right = (getattr(program, "jaxpr", program) for program in (one, other))
    held = [list(getattr(program, "consts", ())) for program in (one, other)]
    if any(np.ndim(constant) for constants in held for constant in constants):
        return False
    ends = [(*program.constvars, *program.invars) for program in (left, right)]
    if (
        len(left.eqns) != len(right.eqns)
        or len(ends[0]) != len(ends[1])
        or list(map(str, held[0])) != list(map(str, held[1]))
    ):
        return False
    known = dict(zip(*ends, strict=True))

    def matches(atoms: Sequence[Any], others: Sequence[Any]) -> bool:
        return len(atoms) == len(others) and all(
            same_literal(a, b) if is_literal(a) else not is_literal(b) and known.get(a) is b
            for a, b in zip(atoms, others, strict=True)
        )

    for first, equation in zip(left.eqns, right.eqns, strict=True):
        if not matches(first.invars, equation.invars) or not are_alike(first, equation, sizes):
            return False
        known |= dict(zip(first.outvars, equation.outvars, strict=True))
    return matches(left.outvars, right.outvars)
