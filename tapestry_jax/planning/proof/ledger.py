"""The ledger of a proof: what every slot of a schedule holds, filled in step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Ref, unrenamed
from combinators.index_space.tensor_type import TensorType
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.geometry.changes import Cast, Change, Gather, Overlap, Reorder, Share, Slice
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.proof.changed import changed
from tapestry_jax.planning.proof.holdings import Holding, OfDevice, Start, State, Total, Value
from tapestry_jax.planning.proof.pieces import Piece, pieces_of
from tapestry_jax.planning.proof.site import Site, check_same, refuse
from tapestry_jax.planning.scheduling.schedule import Schedule


@dataclass(frozen=True)
class Ledger:
    """What the slots of one schedule hold.

    Attributes:
      schedule: of a program, or of the body of a loop.
      site: where it stands.
      known: slot to what it holds; grows.
    """

    schedule: Schedule
    site: Site
    known: dict[int, Holding] = field(default_factory=dict[int, Holding])

    @property
    def graph(self) -> Graph:
        """The program."""
        return self.schedule.graph

    def give(self, slot: int, holding: Holding, path: str) -> None:
        """Fill a slot, whose layout has to hold all of what it names.

        Raises:
          PlanError: for a slot that is filled, a layout with a gap, or a value of another type.
        """
        if slot in self.known:
            refuse(path, "fills a slot that is filled already", f"slot {slot} holds {self.known[slot]}")
        kind, layout = self.schedule.slots[slot].type, self.schedule.slots[slot].layout
        for number, (cut, size) in enumerate(zip(layout.cuts, kind.shape, strict=True)):
            if cut is None:
                continue
            self.site.check_axes(cut.axes, path)
            step, count = (1, size) if cut.window is None else (cut.window.step, cut.window.count)
            end = cut.block // step * self.site.mesh.size(cut.axes)
            if end < count:
                refuse(path, f"stores axis {number} of {kind} with a gap", f"nobody holds [{end}:{count}]")
        if isinstance(holding, State | Total | OfDevice | Start):
            self._check_leaf(kind, holding, path)
        if isinstance(holding, Value) and kind.struct != self.graph.type_of(holding.ref).struct:
            refuse(path, "stores a value as another type", f"{kind}, not {self.graph.type_of(holding.ref)}")
        self.known[slot] = holding

    def _check_leaf(self, kind: TensorType, holding: State | Total | OfDevice | Start, path: str) -> None:
        leaf = self.operation(holding.node, path)[1].state[holding.leaf]
        if kind.dtype != leaf.dtype:
            refuse(path, "stores a state in another dtype", f"{kind.dtype}, not {leaf.dtype}: {holding}")

    def holding(self, slot: int, path: str) -> Holding:
        """What a slot holds by now.

        Raises:
          PlanError: where nothing has filled it.
        """
        if slot not in self.known:
            refuse(path, "reads a slot that nothing has filled", f"slot {slot}")
        return self.known[slot]

    def pieces(self, slot: int) -> list[Piece]:
        """What the layout of a slot says."""
        known = self.schedule.slots[slot]
        return pieces_of(known.layout, known.type.shape, self.site.mesh)

    def changed(self, slot: int, changes: Sequence[Change], path: str) -> list[Piece]:
        """What becomes of the pieces of a slot.

        Raises:
          PlanError: for a change that does not bring together what belongs together.
        """
        shape = self.schedule.slots[slot].type.shape
        differ = set(self.schedule.slots[slot].varying)
        for change in changes:
            if isinstance(change, Slice | Overlap | Reorder) and change.size != shape[change.axis]:
                refuse(path, f"takes an axis of {shape[change.axis]} cells for one of {change.size}")
            if isinstance(change, Slice) and change.alike and differ & set(change.cut.axes):
                over = "+".join(sorted(differ & set(change.cut.axes)))
                refuse(path, f"slices what differs over `{over}` as equal copies, and would gather other gradients")
            differ = _varying_after(differ, change)
        return changed(self.pieces(slot), changes, shape, self.site, path)

    def source(self, ref: Ref) -> Ref:
        """The value itself, whatever it has been renamed to."""
        return unrenamed(self.graph, ref)

    def value(self, node: int, output: int = 0) -> Value:
        """A value of the graph."""
        return Value(Ref(node, output), self.graph.nodes[node].path)

    def operation(self, node: int, path: str) -> tuple[Apply, Shaped]:
        """The operation that a step runs.

        Raises:
          PlanError: where the graph has none there.
        """
        found = self.graph.nodes[node]
        if not isinstance(found, Apply):
            refuse(path, "runs what is no operation", f"node {node} of the graph")
        return found, self.graph.shaped(node)

    def check_value(self, slot: int, ref: Ref, path: str) -> None:
        """A slot holds the value that the graph names.

        Raises:
          PlanError: where it holds something else.
        """
        held, source = self.holding(slot, path), self.source(ref)
        wanted = self.value(source.node, source.output)
        if held != wanted:
            refuse(path, "reads another value than its program names", f"expected {wanted}", f"got {held}")

    def check_made(self, slot: int, made: Sequence[Piece], path: str, what: str) -> None:
        """The layout of a slot says what has been made for it.

        Raises:
          PlanError: with the two boxes on a device where they differ.
        """
        check_same(self.site, path, what, made, self.pieces(slot), ("makes", "stores"))


def _varying_after(varying: set[str], change: Change) -> set[str]:
    """The mesh axes over which a value varies after a change."""
    match change:
        case Cast(axes):
            return varying | set(axes)
        case Slice(_, cut) | Overlap(_, _, cut):
            return varying | spread(cut.axes)
        case Gather(_, axes, _, keeps):
            return varying if keeps else varying - set(axes)
        case Share(axes):
            return varying - set(axes)
        case _:
            return varying
