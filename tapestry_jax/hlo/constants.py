"""Integers of a program that are known when it is compiled: bounds of loops, wherever XLA has put them.

The TPU compiler prints no trip counts, moves constants of a loop into what it carries, and copies them. So a number is
followed back through copies, tuples and the loops that hand it on unchanged.
"""

from __future__ import annotations

import re
from dataclasses import field

from combinators.frozen import dataclass
from tapestry_jax.hlo.text import Instruction, Module

_SAME = ("copy", "bitcast", "convert", "reshape", "copy-done", "copy-start", "opt-barrier", "broadcast")


@dataclass(frozen=True)
class Constants:
    """Looks up integers of a module."""

    module: Module
    _open: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]], repr=False)

    def of(self, computation: str, name: str, index: int = -1) -> int | None:
        """The integer that an instruction gives; None where it is not known.

        Args:
          computation: where it stands.
          name: of the instruction.
          index: which entry, where it gives a tuple.
        """
        asked = (computation, name, index)
        instruction = self.module.find(computation, name)
        if instruction is None or asked in self._open:
            return None
        self._open.add(asked)
        try:
            return self._of(computation, instruction, index)
        finally:
            self._open.discard(asked)

    def _of(self, computation: str, made: Instruction, index: int) -> int | None:
        if made.opcode == "constant":
            return int(made.argument) if re.fullmatch(r"-?\d+", made.argument) else None
        if made.opcode == "get-tuple-element":
            return self.of(computation, made.operands[0], int(made.attribute("index") or 0))
        if made.opcode == "tuple":
            return self.of(computation, made.operands[index]) if 0 <= index < len(made.operands) else None
        if made.opcode in _SAME and made.operands:
            return self.of(computation, made.operands[0], index if made.opcode == "opt-barrier" else -1)
        if made.opcode in ("add", "subtract", "multiply"):
            return self._computed(computation, made)
        if made.opcode == "while":
            return self._carried(computation, made, index)
        if made.opcode == "parameter":
            return self._given(computation, int(made.argument), index)
        if made.opcode in ("fusion", "call"):
            return self._returned(made, index)
        return None

    def _computed(self, computation: str, made: Instruction) -> int | None:
        a, b = (self.of(computation, operand) for operand in made.operands[:2])
        if a is None or b is None:
            return None
        return {"add": a + b, "subtract": a - b, "multiply": a * b}[made.opcode]

    def _carried(self, computation: str, loop: Instruction, index: int) -> int | None:
        """What goes into a loop, where each turn hands it on as it is."""
        body = next(name for role, name in loop.called if role == "body")
        return self.of(computation, loop.operands[0], index) if self.hands_on(body, index) else None

    def hands_on(self, body: str, index: int) -> bool:
        """Whether a loop's body returns this entry of what it carries unchanged."""
        return self.entry_of(body, self._result(body, index)) == index

    def _result(self, body: str, index: int) -> str:
        root = self.module.root(body)
        if root is None or root.opcode != "tuple" or not 0 <= index < len(root.operands):
            return ""
        return root.operands[index]

    def entry_of(self, computation: str, name: str) -> int | None:
        """Which entry of its only parameter an instruction hands on; None where it is something else."""
        made = self.module.find(computation, name)
        while made is not None and made.opcode in _SAME and made.operands:
            made = self.module.find(computation, made.operands[0])
        if made is None or made.opcode != "get-tuple-element":
            return None
        source = self.module.find(computation, made.operands[0])
        return int(made.attribute("index")) if source is not None and source.opcode == "parameter" else None

    def _given(self, computation: str, position: int, index: int) -> int | None:
        callers = self.module.callers.get(computation, ())
        if len(callers) != 1:
            return None
        where, caller, role = callers[0]
        if role in ("body", "condition"):
            return self._carried(where, caller, index)
        if role == "calls" and position < len(caller.operands):
            return self.of(where, caller.operands[position], index)
        return None

    def _returned(self, made: Instruction, index: int) -> int | None:
        inner = next((name for role, name in made.called if role in ("calls", "to_apply")), "")
        root = self.module.root(inner)
        return None if root is None else self.of(inner, root.name, index)
