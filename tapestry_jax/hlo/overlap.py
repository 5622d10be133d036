"""Which transfers of a scheduled program go on while something is computed.

A collective that is split into a start and a done leaves the time between them to what stands there in the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping

from tapestry_jax.hlo.text import Instruction, Module

_FREE = frozenset(
    ("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "reshape", "iota")
    + ("after-all", "partition-id", "replica-id", "opt-barrier")
)
_MOVES = ("-start", "-done", "-update")


def is_compute(instruction: Instruction) -> bool:
    """Whether a device is busy with it: neither bookkeeping nor the start or end of a transfer."""
    return instruction.opcode not in _FREE and not instruction.opcode.endswith(_MOVES)


def enclosed(module: Module) -> Mapping[tuple[str, str], int]:
    """How many computing instructions stand between each start of a transfer and its end.

    Returns:
      The number by computation and name of the starting instruction; what has no end in the same computation is absent.
    """
    found: dict[tuple[str, str], int] = {}
    for name, instructions in module.computations.items():
        begun: dict[str, int] = {}
        busy = 0
        for instruction in instructions:
            if instruction.opcode.endswith("-start"):
                begun[instruction.name] = busy
            elif instruction.opcode.endswith("-done"):
                for operand in instruction.operands:
                    if operand in begun:
                        found[name, operand] = busy - begun.pop(operand)
            busy += is_compute(instruction)
    return found
