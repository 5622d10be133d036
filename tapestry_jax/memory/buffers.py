"""Which values of a program are buffers, and which are only computed where they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from tapestry_jax.memory.program import BRANCH, COSTLY, FUSED, HELD, LOOP, OPAQUE, UPDATE, VIEW, Node, Program

_COMPUTED = frozenset((VIEW, HELD, FUSED, COSTLY))
"""Kinds whose results need no buffer by themselves."""
_READING = frozenset((OPAQUE, LOOP, BRANCH))
"""Kinds that read all their operands from memory, and compute none on the way."""
_NONE: frozenset[int] = frozenset()


class Buffers:
    """For every value the buffers that it is read from: its own, or those of what it is computed from.

    Args:
      program: a device's program, or the turn of a loop.
      wanted: values that have to stand in a buffer at the end.

    Attributes:
      own: the values that stand in buffers.
      run: the places of operations that are run where they stand, in order: what is only computed later is not there.
    """

    def __init__(self, program: Program, wanted: Iterable[int]) -> None:
        self.own = set(program.inputs) | _stored(program, set(wanted))
        self._roots = [_NONE] * len(program.values)
        self._read: dict[int, frozenset[int]] = {}
        for number in self.own:
            self._roots[number] = frozenset((number,))
        for at, node in enumerate(program.nodes):
            below = self._below(node)
            is_run = node.kind not in _COMPUTED
            for result in node.results:
                if result in self.own:
                    is_run = True
                else:
                    self._roots[result] = below
            if is_run:
                self._read[at] = below
        self.run = list(self._read)

    def of(self, number: int) -> frozenset[int]:
        """The buffers that a value is read from."""
        return self._roots[number]

    def read(self, at: int) -> frozenset[int]:
        """The buffers that the operation in this place reads where it is run."""
        return self._read.get(at, _NONE)

    def _below(self, node: Node) -> frozenset[int]:
        operands = node.operands
        if len(operands) == 1:
            return self._roots[operands[0]]
        return _NONE.union(*[self._roots[number] for number in operands])


def _stored(program: Program, wanted: set[int]) -> set[int]:
    """The values of computed kinds that stand in a buffer, because an operation reads them from one."""
    readers = Counter(chain.from_iterable([set(node.operands) for node in program.nodes]))
    stored: set[int] = set()
    demanded = set(wanted)
    shared: set[int] = set()
    for node in program.nodes:
        if node.kind in _READING:
            demanded.update(node.operands)
        elif node.kind == UPDATE:
            demanded.add(node.operands[0])
    for node in reversed(program.nodes):
        kind = node.kind
        if kind not in _COMPUTED:
            stored.update(node.results)
            continue
        if len(node.results) > 1 and sum(result in readers for result in node.results) > 1:
            shared.update(node.operands)
        for result in node.results:
            asked, often = result in demanded, result in shared or readers[result] > 1
            # A view of a buffer is that buffer: whoever asks for the view asks for what is behind it.
            if kind in (VIEW, HELD):
                if asked or kind == HELD:
                    demanded.update(node.operands)
                if often:
                    shared.update(node.operands)
            elif asked or (kind == COSTLY and often):
                stored.add(result)
            elif often:
                # It is computed for each of its readers, and so is what only it reads.
                shared.update(node.operands)
    return stored
