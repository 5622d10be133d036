"""How often each computation of a program runs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tapestry_jax.hlo.constants import Constants
from tapestry_jax.hlo.text import Instruction, Module

_KNOWN = re.compile(r"known_trip_count[^\d]*(\d+)")
_FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE", "EQ": "EQ"}


def executions(module: Module) -> Mapping[str, int]:
    """For each computation how often it runs: the product of the trip counts of the loops around it.

    The branches of a condition count as if each ran. A loop whose turns are not known, because they depend on data,
    counts once.
    """
    constants = Constants(module)
    found: dict[str, int] = {}

    def times(name: str) -> int:
        if name not in found:
            callers = module.callers.get(name, ())
            turns = (times(where) * _turns(constants, where, by, role) for where, by, role in callers)
            found[name] = sum(turns) if callers else 1
        return found[name]

    return {name: times(name) for name in module.computations}


def _turns(constants: Constants, where: str, by: Instruction, role: str) -> int:
    turns = trip_count(constants, where, by) if role == "body" else None
    return 1 if turns is None else turns


def trip_count(constants: Constants, where: str, loop: Instruction) -> int | None:
    """The turns of a `while`; None where they are not known before it runs."""
    printed = _KNOWN.search(loop.rest)
    if printed is not None:
        return int(printed.group(1))
    called = dict(loop.called)
    compared = _comparison(constants, called.get("condition", ""))
    if compared is None:
        return None
    index, bound, direction = compared
    start = constants.of(where, loop.operands[0], index)
    step = _step(constants, called.get("body", ""), index)
    return None if start is None or step is None else _count(start, bound, step, direction)


def _comparison(constants: Constants, condition: str) -> tuple[int, int, str] | None:
    """Which carried entry the condition compares, with what, and how."""
    root = constants.module.root(condition)
    if root is None or root.opcode != "compare":
        return None
    left, right = root.operands
    direction = root.attribute("direction")
    for counted, other, way in ((left, right, direction), (right, left, _FLIPPED[direction])):
        index, bound = constants.entry_of(condition, counted), constants.of(condition, other)
        if index is not None and bound is not None:
            return index, bound, way
    return None


def _step(constants: Constants, body: str, index: int) -> int | None:
    """By how much a turn advances an entry."""
    module = constants.module
    root = module.root(body)
    made = module.find(body, root.operands[index]) if root is not None and root.opcode == "tuple" else None
    while made is not None and made.opcode in ("copy", "bitcast"):
        made = module.find(body, made.operands[0])
    if made is None or made.opcode not in ("add", "subtract"):
        return None
    for counted, by in (made.operands, made.operands[::-1]):
        amount = constants.of(body, by)
        if constants.entry_of(body, counted) == index and amount is not None:
            return amount if made.opcode == "add" else -amount
    return None


def _count(start: int, bound: int, step: int, direction: str) -> int | None:
    ahead = {"LT": bound - start, "LE": bound - start + 1, "NE": bound - start}
    behind = {"GT": start - bound, "GE": start - bound + 1}
    if step > 0 and direction in ahead:
        return max(0, -(-ahead[direction] // step))
    if step < 0 and direction in behind:
        return max(0, -(-behind[direction] // -step))
    return None
