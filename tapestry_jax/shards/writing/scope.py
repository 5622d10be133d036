"""What is held while steps are written: the pieces of slots, in the coordinates of the loops around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from combinators.frozen import dataclass
from combinators.graphs.nodes import Input, Ref, Rename
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.shards.parts import Next, Piece, Take, View
from tapestry_jax.shards.ranges import Range
from tapestry_jax.shards.writing.layouts import box_of, index_box, range_of
from tapestry_jax.shards.writing.matched import Origins
from tapestry_jax.shards.writing.tables import Common, Tables


@dataclass(frozen=True)
class Scope:
    """One schedule while it is written; the steps of a loop in time go to the tables of what is around it.

    Attributes:
      common: what all programs refer to.
      tables: what has been written of the program.
      origins: which operations of the program the scheduled ones are.
      schedule: whose steps are written.
      loops: the coordinates of the loops around.
      carries: how many inputs of the program are carried from turn to turn.
      held: the piece of every slot.
      totals: slots without a piece: what a scan hands on within its own chain.
      seen: pieces by the value that they are a piece of.
      states: the leaves of the states of folds.
      called: the coordinates' names of loops that are called otherwise.
    """

    common: Common
    tables: Tables
    origins: Origins
    schedule: Schedule
    loops: tuple[str, ...] = ()
    carries: int = 0
    held: dict[int, int] = field(default_factory=dict[int, int])
    totals: set[int] = field(default_factory=set[int])
    seen: dict[tuple[int, Ref, int], int] = field(default_factory=dict[tuple[int, Ref, int], int])
    states: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    called: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, node: int, slot: int) -> None:
        """An argument of the program, or what the body of a loop takes in."""
        value = self.tables.refs[Ref(node, 0)]
        self.held[slot] = self.piece(value, slot)
        self.tables.steps.append(Take(self.tables.graph.nodes[node].path, self.held[slot]))

    def outputs(self) -> list[tuple[str, int]]:
        """Name and piece of all outputs."""
        listed = zip(self.tables.graph.outputs, self.schedule.outputs, strict=True)
        last = self.origins.depth - 1
        return [(name, self.as_value(self.held[slot], ref, last)) for (name, ref), slot in listed]

    def as_value(self, piece: int, ref: Ref, substep: int) -> int:
        """A piece as that of the value that the program names, which may be another name of the same cells."""
        key = piece, ref, substep
        if key not in self.seen:
            self.seen[key] = self._as_value(piece, ref, substep)
        return self.seen[key]

    def _as_value(self, piece: int, ref: Ref, substep: int) -> int:
        node, tables = self.tables.graph.nodes[ref.node], self.tables
        if isinstance(node, Rename):
            source = self.as_value(piece, node.operands[0], substep)
            result = tables.piece(replace(tables.pieces[source], value=tables.refs[ref]))
            tables.steps.append(View(node.path, source, result, node.names))
            return result
        if isinstance(node, Input) and ref.node < self.carries and substep > 0:
            result = tables.piece(replace(tables.pieces[piece], value=tables.refs[ref], substep=substep))
            tables.steps.append(Next(piece, result))
            return result
        return piece

    def piece(self, value: int, slot: int, **changes: object) -> int:
        """A new piece of a value: what the layout of a slot gives every device."""
        return self.tables.piece(replace(Piece(value, self.box_of_slot(slot), self.loops), **changes))

    def real(self, axes: Sequence[str]) -> tuple[str, ...]:
        """The coordinates of mesh axes and loops that are larger than one."""
        return tuple(self.called.get(axis, axis) for axis in self.common.mesh.real(axes))

    def range_of(self, cut: Cut | None, size: int) -> Range:
        """What a cut gives every device and turn."""
        return self._named(range_of(cut, size, self.common.mesh))

    def box_of_slot(self, slot: int) -> tuple[Range, ...]:
        """What the layout of a slot gives every device and turn."""
        known = self.schedule.slots[slot]
        return tuple(map(self._named, box_of(known.layout, known.type.shape, self.common.mesh)))

    def index_box(self, cuts: dict[str, Cut], sizes: Mapping[str, int]) -> tuple[tuple[str, Range], ...]:
        """The index box of an operation."""
        return tuple((dim, self._named(own)) for dim, own in index_box(cuts, sizes, self.common.mesh))

    def _named(self, own: Range) -> Range:
        # Loops of one name may be of two kinds, a pipeline and chunks: their coordinates have names of their own.
        return replace(own, steps=tuple((self.called.get(name, name), step) for name, step in own.steps))
