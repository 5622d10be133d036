"""What XLA for CPUs runs as one kernel of a library: a reduction, with the arithmetic and the products around it.

A kernel of the library reads what it does not compute itself from memory. A reduction grows up and down over arithmetic
that nobody outside reads, over products too: of two layers of a perceptron and their mean squared error nothing between
is written. A reduction of a choice (a mask), on the other hand, or of what somebody else reads as well, needs it in
memory, where other compilers compute it on the way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tapestry_jax.memory.program import OPAQUE, Node, Program

_JOIN = ("adds", "joins", "product", "reduction")


def grouped(program: Program) -> Program:
    """The same program, each kernel of the library one operation; bodies of loops stay as they are."""
    nodes = program.nodes
    makers = {result: at for at, node in enumerate(nodes) for result in node.results}
    readers: dict[int, set[int]] = defaultdict(set)
    for at, node in enumerate(nodes):
        for number in node.operands:
            readers[number].add(at)
    outputs = {out for out in program.outputs if out is not None}
    kernels = _Kernels(nodes, makers, readers, outputs)
    for at in reversed(range(len(nodes))):
        if nodes[at].library == "reduction":
            kernels.grow(at)
    made: list[Node] = []
    for at, node in enumerate(nodes):
        members = kernels.members(at)
        if not members:
            made.append(node)
        elif at == max(members):
            made.append(_joined(nodes, sorted(members), readers, outputs))
    return replace(program, nodes=tuple(made))


class _Kernels:
    """Which operations are computed together."""

    def __init__(
        self, nodes: tuple[Node, ...], makers: dict[int, int], readers: dict[int, set[int]], outputs: set[int]
    ) -> None:
        self._nodes, self._makers, self._readers, self._outputs = nodes, makers, readers, outputs
        self._of: dict[int, set[int]] = {}

    def members(self, at: int) -> set[int]:
        """The operations computed together with one of the library's; empty for all others."""
        return self._of.get(at, set())

    def grow(self, start: int) -> None:
        """Take in what only this kernel reads, and what alone reads it, until nothing more is found."""
        if start in self._of:
            return
        members = self._of[start] = {start}
        todo = [start]
        while todo:
            at = todo.pop()
            for other in (*self._above(at, members), *self._below(at)):
                if other in members:
                    continue
                # A kernel that stands already comes with all that it holds.
                more = self._of.get(other, {other})
                members |= more
                todo.extend(members)
                self._of.update(dict.fromkeys(members, members))

    def _above(self, at: int, members: set[int]) -> list[int]:
        found: list[int] = []
        for number in self._nodes[at].operands:
            maker = self._makers.get(number)
            if maker is not None and self._nodes[maker].library in _JOIN and self._stays(maker, members):
                found.append(maker)
        return found

    def _below(self, at: int) -> list[int]:
        results = self._nodes[at].results
        readers = set[int]().union(*(self._readers[number] for number in results))
        if len(readers) != 1 or not self._outputs.isdisjoint(results):
            return []
        (reader,) = readers
        return [reader] if self._nodes[reader].library in _JOIN else []

    def _stays(self, maker: int, members: set[int]) -> bool:
        """Whether nobody outside reads what an operation makes."""
        results = self._nodes[maker].results
        return self._outputs.isdisjoint(results) and all(self._readers[number] <= members for number in results)


def _joined(nodes: tuple[Node, ...], members: list[int], readers: dict[int, set[int]], outputs: set[int]) -> Node:
    """The operations of a kernel as one, which stands where the last of them did."""
    inside = set(members)
    made = [number for at in members for number in nodes[at].results]
    results = tuple(number for number in made if number in outputs or not readers[number] <= inside)
    operands = dict.fromkeys(number for at in members for number in nodes[at].operands)
    root = nodes[members[-1]]
    return replace(root, kind=OPAQUE, operands=tuple(n for n in operands if n not in set(made)), results=results)
