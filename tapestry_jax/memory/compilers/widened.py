"""What stands in memory in float32 on CPUs, although the program says bfloat16.

XLA for CPUs computes in float32 what a program computes in bfloat16, and leaves out the roundings between two
operations. What is given in bfloat16, or handed on from turn to turn, is widened before it is read: stacks of
parameters as a whole, before the loop that reads their slices.

Source: compiled programs and their buffer assignments, jaxlib 0.10.2; the pass is XLA's `float-normalization-bf16`.
So did 0.11.1. XLA of 0.12 computes products of bfloat16 as they are, and widens inside of kernels alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import jax

from tapestry_jax.memory.program import FUSED, LOOP, VIEW, Node, Program, Value

_WIDE, _NARROW = "float32[", "bfloat16["
WIDENS = jax.__version_info__ < (0, 12)


def widened(program: Program) -> Program:
    """The same program, which reads and gives what it did; itself where XLA widens nothing in memory."""
    if not WIDENS or not _has_narrow(program):
        return program
    return _Widening(program, narrow=program.inputs).run(narrow=range(len(program.outputs)))


def _has_narrow(program: Program) -> bool:
    return any(value.text.startswith(_NARROW) for value in program.values) or any(
        _has_narrow(body) for node in program.nodes for body in node.bodies
    )


class _Widening:
    """A program, or the turn of a loop, while it is written anew.

    Args:
      program: as it was.
      narrow: inputs that are given in bfloat16; others of that type are given in float32.
    """

    def __init__(self, program: Program, narrow: Iterable[int]) -> None:
        self._program = program
        self._values = list(program.values)
        self._nodes: list[Node] = []
        self._other: dict[int, int] = {}
        self._narrow = {number for number in narrow if program.values[number].text.startswith(_NARROW)}
        for number in program.inputs:
            if number not in self._narrow:
                self._values[number] = _wide(program.values[number])

    def run(self, narrow: Iterable[int]) -> Program:
        """The program anew.

        Args:
          narrow: places of outputs that are given in bfloat16.
        """
        for node in self._program.nodes:
            self._nodes.append(self._node(node))
        places = set(narrow)
        outputs = tuple(
            self._as_narrow(number) if place in places and number is not None else number
            for place, number in enumerate(self._program.outputs)
        )
        return replace(self._program, values=tuple(self._values), nodes=tuple(self._nodes), outputs=outputs)

    def _node(self, node: Node) -> Node:
        if node.kind == VIEW and self._narrow.issuperset(node.operands):
            self._narrow.update(node.results)
            return node
        if node.kind == LOOP:
            return self._loop(node)
        for result in node.results:
            self._values[result] = _wide(self._values[result])
        bodies = tuple(_Widening(body, ()).run(()) for body in node.bodies)
        return replace(node, operands=tuple(map(self._as_wide, node.operands)), bodies=bodies)

    def _loop(self, node: Node) -> Node:
        body = node.bodies[0]
        handed = range(node.held, node.held + node.carries)
        operands = tuple(
            self._as_narrow(number) if place in handed else self._as_wide(number)
            for place, number in enumerate(node.operands)
        )
        # What turns give, and what they hand on, has the type that the program says.
        self._narrow.update(number for number in node.results if self._is_narrow(number))
        turn = _Widening(body, (body.inputs[place] for place in handed)).run(range(len(node.results)))
        return replace(node, operands=operands, bodies=(turn,))

    def _as_wide(self, number: int) -> int:
        return self._converted(number, _wide) if number in self._narrow else number

    def _as_narrow(self, number: int) -> int:
        is_wide = self._is_narrow(number) and number not in self._narrow
        return self._converted(number, lambda _: self._program.values[number]) if is_wide else number

    def _is_narrow(self, number: int) -> bool:
        """Whether the program says bfloat16 of a value."""
        return self._program.values[number].text.startswith(_NARROW)

    def _converted(self, number: int, to: Callable[[Value], Value]) -> int:
        """The number of the same value in the other type; who reads it shares it."""
        if number not in self._other:
            self._values.append(to(self._values[number]))
            self._other[number] = len(self._values) - 1
            made = (self._other[number],)
            self._nodes.append(Node(FUSED, (number,), made, "", library="joins", name="convert_element_type"))
        return self._other[number]


def _wide(value: Value) -> Value:
    if not value.text.startswith(_NARROW):
        return value
    return Value(2 * value.bytes, _WIDE + value.text.removeprefix(_NARROW))
