"""Which monoid a function of numbers is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from combinators import monoids
from combinators.merging.monoid import Monoid
from tapestry_jax.lifting.control.inside import Written
from tapestry_jax.lifting.kernels.bits import BITS_AND, BITS_OR, BITS_XOR
from tapestry_jax.lifting.kernels.cells import Instruction, Program
from tapestry_jax.lifting.values import CellStep, needed

_NUMBERS = {"add": monoids.Sum, "mul": monoids.Prod, "max": monoids.Max, "min": monoids.Min}
_TRUTHS = {"or": monoids.Any, "and": monoids.All, "xor": BITS_XOR}
_BITS = {"or": BITS_OR, "and": BITS_AND, "xor": BITS_XOR}
_COMMUTE = frozenset({*_NUMBERS, *_BITS})


def cells_of(written: Written, wanted: Sequence[int]) -> Program | None:
    """A program as one of numbers, as far as it gives some results; None where a step is not cell by cell."""
    registers: dict[int, Any] = {value: at for at, value in enumerate(written.inputs)}
    results = [written.steps.outputs[at] for at in wanted]
    instructions, count = list[Instruction](), len(registers)
    for step in needed(written.steps.steps, results):
        if not isinstance(step, CellStep) or step.coordinates:
            return None
        own: list[Any] = [registers[value] for value, _ in step.operands]
        for instruction in step.program.instructions:
            inputs = tuple(own[at] if type(at) is int else at for at in instruction.inputs)
            instructions.append(replace(instruction, inputs=inputs))
            own += range(count, count + instruction.count)
            count += instruction.count
        outputs = [own[at] if type(at) is int else at for at in step.program.outputs]
        registers |= {value: at for (value, _), at in zip(step.results, outputs, strict=True)}
    return Program(tuple(instructions), tuple(registers[value] for value in results))


def known_monoid(
    program: Program, leaves: Sequence[int], count: int, dtypes: Sequence[Any]
) -> tuple[tuple[int, ...], Monoid | None]:
    """The monoid that a program is, and the order in which it takes leaves; None where it is none of ours.

    Args:
      program: of the leaves of both sides, to those that are asked for.
      leaves: the ones that are asked for.
      count: how many leaves a side has.
      dtypes: of those that are asked for.
    """
    told = _expressions(program, 2 * count)
    results = [told[at] if type(at) is int else None for at in program.outputs]
    left, right = [("read", at) for at in leaves], [("read", count + at) for at in leaves]
    truths = [dtype == jnp.bool_ for dtype in dtypes]
    if len(leaves) == 1:
        named = _TRUTHS if truths[0] else _NUMBERS | _BITS
        return (0,), next((named[name] for name in named if results[0] == _of(name, left[0], right[0])), None)
    for decay, drive in ((0, 1), (1, 0)) if len(leaves) == 2 and not any(truths) else ():
        product = _of("mul", left[decay], right[decay])
        moved = _of("add", _of("mul", right[decay], left[drive]), right[drive])
        if (results[decay], results[drive]) == (product, moved):
            return (decay, drive), monoids.AffineRecurrence
    return (), None


def _expressions(program: Program, inputs: int) -> list[Any]:
    """What every register is, from what is read; the operands of what commutes are in one order."""
    told: list[Any] = [("read", at) for at in range(inputs)]
    for instruction in program.instructions:
        name = "add" if instruction.primitive == "add_any" else instruction.primitive
        operands = [told[at] if type(at) is int else ("number", repr(at)) for at in instruction.inputs]
        is_known = instruction.rule is None and name in _COMMUTE
        own = [_of(name, *operands)] if is_known else [("other", len(told) + at) for at in range(instruction.count)]
        told += own
    return told


def _of(primitive: str, *operands: Any) -> Any:
    """What a primitive that commutes gives."""
    return primitive, *sorted(operands, key=repr)
