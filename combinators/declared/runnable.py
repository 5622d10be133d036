"""Whether the program of a kernel can be run while it is traced: it only computes, soon ends, and takes few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from combinators.declared.drawn import is_key
from combinators.kernels.jaxprs import programs_inside

# What calls code that is none of JAX's, waits for other devices, or may never end on numbers that were drawn.
_FOREIGN = ("callback", "ffi", "custom_call", "pallas", "triton", "partitioning", "shard_map", "feed", "while")
# The most cells of operands and results, numbers that are computed on the way, and equations that are compiled.
_CELLS, _WORK, _EQUATIONS = 1 << 21, 1 << 26, 1024


def can_be_run(program: Any) -> bool:
    """Whether a closed jaxpr takes numbers and keys alone, not too many, and does nothing but compute for a moment."""
    if program is None or program.effects:
        return False
    avals = (*program.in_avals, *program.out_avals)
    if not all(isinstance(aval.dtype, np.dtype) or is_key(aval.dtype) for aval in avals):
        return False
    equations = list(_equations(program.jaxpr, 1))
    return (
        cells_of(program) <= _CELLS
        and len(equations) <= _EQUATIONS
        and not any(part in equation.primitive.name for equation, _ in equations for part in _FOREIGN)
        and sum(times * _work(equation) for equation, times in equations) <= _WORK
    )


def is_large(program: Any) -> bool:
    """Whether a closed jaxpr takes and gives more cells than are run, or computes more."""
    work = sum(times * _work(equation) for equation, times in _equations(program.jaxpr, 1))
    return cells_of(program) > _CELLS or work > _WORK


def cells_of(program: Any) -> int:
    """The cells of the operands and the results of a closed jaxpr."""
    return sum(math.prod(aval.shape) for aval in (*program.in_avals, *program.out_avals))


def _equations(jaxpr: Any, times: int) -> Iterator[tuple[Any, int]]:
    """Every equation, and how often it is run."""
    for equation in jaxpr.eqns:
        yield equation, times
        often = times * max(1, int(equation.params.get("length", 1))) if equation.primitive.name == "scan" else times
        for inner in programs_inside(equation):
            yield from _equations(getattr(inner, "jaxpr", inner), often)


def _work(equation: Any) -> int:
    """Numbers that an equation gives, or multiplies for them: no fewer than there are."""
    given = sum(math.prod(out.aval.shape) for out in equation.outvars)
    name = equation.primitive.name
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return given * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        return given * math.prod(equation.invars[1].aval.shape)
    return given
