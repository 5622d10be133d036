"""A program that several calls share: read once, and placed where each of them stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from combinators.frozen import changed, dataclass
from tapestry_jax.memory.program import Node, Program, Value

Told = Mapping[str, tuple[str, bool]]
"""Paths of operations by their scopes inside of the program that is called, and whether they are a derivative's."""


@dataclass(frozen=True, eq=False)
class Called:
    """What a called program makes, in numbers of its own: inputs that are there come first, constants have none.

    Attributes:
      inputs: how many of them there are.
      values: that it makes.
      nodes: in order; their paths are scopes, as they stand inside of it.
      outputs: numbers of values, or None for what is constant.
      uniform: numbers of what it makes that is the same everywhere.
    """

    inputs: int
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int | None, ...]
    uniform: frozenset[int]

    @cached_property
    def scopes(self) -> frozenset[str]:
        """Those in which its nodes stand, also in loops and branches."""
        return frozenset(_scopes(self.nodes))

    def numbers(self, operands: Sequence[int | None], first: int) -> list[int]:
        """The numbers of its values where it is called.

        Args:
          operands: of the call, None for constants.
          first: the number of the first value that it makes.
        """
        return [*(number for number in operands if number is not None), *range(first, first + len(self.values))]

    def placed(self, numbers: Sequence[int], told: Told) -> list[Node]:
        """Its nodes where it is called."""
        return [_placed(node, numbers, told) for node in self.nodes]


def _placed(node: Node, numbers: Sequence[int], told: Told) -> Node:
    path, backward = told[node.path]
    operands, results = node.operands, node.results
    return changed(
        node,
        operands=tuple([numbers[number] for number in operands]),
        results=tuple([numbers[number] for number in results]),
        path=path,
        backward=backward,
        bodies=tuple([_told(body, told) for body in node.bodies]) if node.bodies else (),
    )


def _told(program: Program, told: Told) -> Program:
    """The turn of a loop, or a branch, that belongs to whoever calls it."""
    return changed(program, nodes=tuple([_told_node(node, told) for node in program.nodes]))


def _told_node(node: Node, told: Told) -> Node:
    path, backward = told[node.path]
    bodies = tuple([_told(body, told) for body in node.bodies]) if node.bodies else ()
    return changed(node, path=path, backward=backward, bodies=bodies)


def _scopes(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        yield node.path
        for body in node.bodies:
            yield from _scopes(body.nodes)
