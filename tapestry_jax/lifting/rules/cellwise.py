"""Primitives that compute each cell from the same cell of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.kernels.elementwise import CELLWISE
from tapestry_jax.lifting.kernels.cells import Instruction
from tapestry_jax.lifting.kernels.primitives import is_known, plain
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of

NEUTRAL = frozenset({"copy", "copy_p", "device_put", "name", "optimization_barrier", "sharding_constraint"})
"""What gives its operands back; where tensors lie is the plan's to say."""


def same(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """The operands themselves."""
    del walk, equation
    return atoms


def cellwise(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """One instruction, cell by cell; its operands have the result's shape, or 1 in its place, or no axes."""
    instruction = instruction_of(equation, atoms)
    outs = types_of(equation)
    fits = all(_spreads(walk.shape(atom), outs[0].shape) for atom in atoms)
    if instruction is None or not fits:
        return None
    return walk.elementwise(instruction, atoms, outs)


def _spreads(shape: Sequence[int], full: Sequence[int]) -> bool:
    same_rank = len(shape) == len(full)
    return not shape or (same_rank and all(size in (1, whole) for size, whole in zip(shape, full, strict=True)))


def instruction_of(equation: Any, inputs: Any) -> Instruction | None:
    """The instruction of a primitive that acts cell by cell; None for any other."""
    name, shapes = equation.primitive.name, {tuple(var.aval.shape) for var in equation.invars}
    if name not in CELLWISE or not is_known(equation.primitive) or equation.primitive.multiple_results:
        return None
    if name == "bitcast_convert_type" and shapes != {tuple(equation.outvars[0].aval.shape)}:
        return None
    params = plain(equation.params)
    return None if params is None else Instruction(name, params, tuple(inputs))


# Which platform a program is for is asked by what chooses between programs (`inlined`).
TABLE = dict.fromkeys(sorted(CELLWISE - {"platform_index"}), cellwise) | dict.fromkeys(sorted(NEUTRAL), same)
