"""The tables of a sharded graph while it is written: of all, coordinates and operations; of each program the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Ref
from combinators.operations.operation import Operation
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.shards.parts import Block, Coordinate, Piece, Program, Repeat, Shared, Step, Value


@dataclass(frozen=True)
class Common:
    """What all programs of one sharded graph refer to, growing."""

    mesh: MeshShape
    coordinates: dict[str, Coordinate] = field(default_factory=dict[str, Coordinate])
    operations: dict[Operation, int] = field(default_factory=dict[Operation, int])

    @staticmethod
    def of(mesh: MeshShape) -> Common:
        """The tables of a mesh, before anything is written."""
        return Common(mesh, {name: Coordinate(name, size) for name, size in mesh.axes})

    def operation(self, operation: Operation) -> int:
        """The place of an operation."""
        return self.operations.setdefault(operation, len(self.operations))

    def coordinate(self, wanted: Coordinate) -> str:
        """The name of a coordinate; a second one that differs gets a number behind its name."""
        name, number = wanted.name, 1
        while name in self.coordinates and self.coordinates[name] != replace(wanted, name=name):
            number += 1
            name = f"{wanted.name}#{number}"
        self.coordinates[name] = replace(wanted, name=name)
        return name

    @property
    def shared(self) -> Shared:
        """What has been collected."""
        return Shared(tuple(self.coordinates.values()), tuple(self.operations))


@dataclass(frozen=True)
class Tables:
    """What has been written of one program."""

    graph: Graph
    refs: dict[Ref, int] = field(default_factory=dict[Ref, int])
    values: list[Value] = field(default_factory=list[Value])
    pieces: list[Piece] = field(default_factory=list[Piece])
    steps: list[Step] = field(default_factory=list[Step])

    @staticmethod
    def of(graph: Graph) -> Tables:
        """The tables of a program whose values stand in its own order."""
        tables = Tables(graph)
        for index, node in enumerate(graph.nodes):
            for output, kind in enumerate(node.results):
                tables.refs[Ref(index, output)] = tables.value(Value(kind, node.path))
        return tables

    def value(self, value: Value) -> int:
        """A new tensor."""
        self.values.append(value)
        return len(self.values) - 1

    def piece(self, piece: Piece) -> int:
        """A new piece."""
        self.pieces.append(piece)
        return len(self.pieces) - 1

    def program(self, outputs: Sequence[tuple[str, int]]) -> Program:
        """The program, without tensors that nothing makes."""
        made = {piece.value for piece in self.pieces}
        for step in self.steps:
            if isinstance(step, Block | Repeat):
                made.update(step.makes)
        moved = {old: new for new, old in enumerate(sorted(made))}
        graph = self.graph
        return Program(
            graph.name,
            tuple(self.values[old] for old in moved),
            tuple(replace(piece, value=moved[piece.value]) for piece in self.pieces),
            tuple(_moved(step, moved) for step in self.steps),
            tuple(outputs),
            tuple((name, moved[self.refs[ref]]) for name, ref in graph.named if self.refs[ref] in moved),
            graph.suggested,
            graph.in_tree,
            graph.out_tree,
        )


def _moved(step: Any, moved: dict[int, int]) -> Any:
    if not isinstance(step, Block | Repeat):
        return step
    return replace(step, makes=tuple(moved[value] for value in step.makes))
