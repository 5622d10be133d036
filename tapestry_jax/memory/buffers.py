"""Which values of a program are buffers, and which are only computed where they are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tapestry_jax.memory.program import BRANCH, COSTLY, FUSED, HELD, LOOP, OPAQUE, UPDATE, VIEW, Node, Program

_COMPUTED = (VIEW, HELD, FUSED, COSTLY)
"""Kinds whose results need no buffer by themselves."""


class Buffers:
    """For every value the buffers that it is read from: its own, or those of what it is computed from.

    Args:
      program: a device's program, or the turn of a loop.
      wanted: values that have to stand in a buffer at the end.
    """

    def __init__(self, program: Program, wanted: Iterable[int]) -> None:
        self._program = program
        self.own = set(program.inputs) | _stored(program, set(wanted))
        self._roots: dict[int, frozenset[int]] = {}
        self._read: dict[int, frozenset[int]] = {}
        makers = {result: node for node in program.nodes for result in node.results}
        for number in range(len(program.values)):
            if number not in makers:
                self._roots[number] = frozenset((number,)) if number in self.own else frozenset()
        for node in program.nodes:
            below = frozenset[int]().union(*(self._roots[number] for number in node.operands))
            for result in node.results:
                if node.kind in _COMPUTED and result not in self.own:
                    self._roots[result] = below
                else:
                    self._roots[result] = frozenset((result,))

    def of(self, number: int) -> frozenset[int]:
        """The buffers that a value is read from."""
        return self._roots[number]

    def read(self, node: Node) -> frozenset[int]:
        """The buffers that an operation reads, where it is run; what is only computed later reads nothing now."""
        found = self._read.get(id(node))
        if found is None:
            found = self._read[id(node)] = self._read_by(node)
        return found

    def _read_by(self, node: Node) -> frozenset[int]:
        if node.kind in _COMPUTED and not any(result in self.own for result in node.results):
            return frozenset()
        return frozenset[int]().union(*(self._roots[number] for number in node.operands))


def _stored(program: Program, wanted: set[int]) -> set[int]:
    """The values of computed kinds that stand in a buffer, because an operation reads them from one."""
    readers: dict[int, list[Node]] = defaultdict(list)
    for node in program.nodes:
        for number in set(node.operands):
            readers[number].append(node)
    stored: set[int] = set()
    demanded = set(wanted)
    shared: set[int] = set()
    for node in reversed(program.nodes):
        if node.kind in _COMPUTED and sum(result in readers for result in node.results) > 1:
            shared.update(node.operands)
        for result in node.results:
            if node.kind not in _COMPUTED:
                stored.add(result)
                continue
            by = readers[result]
            asked = result in demanded or any(_reads_buffer(reader, result) for reader in by)
            # A view of a buffer is that buffer: whoever asks for the view asks for what is behind it.
            if node.kind in (VIEW, HELD):
                if asked or node.kind == HELD:
                    demanded.update(node.operands)
                if result in shared or len(by) > 1:
                    shared.update(node.operands)
            elif asked or (node.kind == COSTLY and (result in shared or len(by) > 1)):
                stored.add(result)
            elif result in shared or len(by) > 1:
                # It is computed for each of its readers, and so is what only it reads.
                shared.update(node.operands)
    return stored


def _reads_buffer(node: Node, number: int) -> bool:
    """Whether an operation reads this operand from memory, and does not compute it on the way."""
    return node.kind in (OPAQUE, LOOP, BRANCH) or (node.kind == UPDATE and node.operands[0] == number)
