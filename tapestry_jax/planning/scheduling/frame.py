"""Values and steps of one program or loop body while it is scheduled; conversions are made once and shared."""

from __future__ import annotations

from collections.abc import Mapping

from combinators.frozen import changed
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Ref
from tapestry_jax.planning.geometry.changes import Cast, Overlap, Slice
from tapestry_jax.planning.geometry.hops import sends
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.opening import outside, rotates, streams, turn_cut
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.geometry.way import layout_changes
from tapestry_jax.planning.scheduling.schedule import Convert, Schedule, Slot, Step


class Frame:
    """Where steps are collected: a whole program, or the body of a loop in time inside another frame."""

    def __init__(
        self,
        graph: Graph,
        mesh: MeshShape,
        opened: tuple[str, ...],
        parent: Frame | None = None,
        stages: frozenset[str] = frozenset(),
    ) -> None:
        self.graph, self.mesh, self.opened, self.parent = graph, mesh, opened, parent
        # Devices along these axes are in different turns: everything inside varies over them.
        self.stages = stages if parent is None else stages | parent.stages
        self.slots: list[Slot] = []
        self.steps: list[Step] = []
        self.home: dict[Ref, int] = {}
        self.given: dict[Ref, int] = {}
        self.states: dict[int, tuple[int, ...]] = {}
        self.totals: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.inputs: list[int] = []
        self.operands: list[int] = []
        self.rotating: list[int] = []
        self.handed: list[int] = []
        # Of values around a loop the layouts in which its turns take pieces that serve several readers.
        self.taken: Mapping[Ref, Layout] = {}
        self._converted: dict[tuple[int, Layout, frozenset[str]], int] = {}
        self._imported: dict[tuple[int, Layout, Layout | None], int] = {}

    def add(self, slot: Slot) -> int:
        """A new slot."""
        self.slots.append(slot)
        return len(self.slots) - 1

    def store(self, ref: Ref, layout: Layout, varying: frozenset[str] | None = None) -> int:
        """The slot of a value that is made here."""
        axes = self.stages | (spread(layout.axes) if varying is None else varying)
        self.home[ref] = self.add(Slot(self.graph.type_of(ref), layout, axes))
        return self.home[ref]

    def enter_program(self, ref: Ref, layout: Layout, path: str) -> None:
        """Bring an argument, which users hold in its true shape, into the layout in which the program has it."""
        given = self.home[ref]
        self.home[ref] = self.convert(ref, layout, spread(layout.axes), path)
        entering = self.steps[-1]
        assert isinstance(entering, Convert)
        self.steps[-1] = changed(entering, enters=True)
        self.given[ref] = given

    def layout_of(self, ref: Ref) -> Layout:
        """The layout in which a value lies, in this frame or the next one around that has it."""
        if ref in self.home or self.parent is None:
            return self.slots[self.home[ref]].layout
        return self.parent.layout_of(ref)

    def convert(self, ref: Ref, layout: Layout, varying: frozenset[str], path: str, order: tuple[int, ...] = ()) -> int:
        """The slot of a value in a layout, varying over mesh axes; a step is added where there is none yet.

        Its gradients are added up with their axes in the order that the first who asks for it has.
        """
        varying |= self.stages
        if ref not in self.home:
            return self._from_outside(ref, layout, varying, path, order)
        source = self._nearest(ref, layout)
        slot = self.slots[source]
        # What was cast outside, before a loop, stays so, whatever is asked of it here.
        held = slot.varying - spread(slot.layout.axes)
        varying |= held
        if slot.layout == layout and slot.varying == varying:
            return source
        return self._changed(source, layout, varying, held, path, order)

    def _changed(
        self,
        source: int,
        layout: Layout,
        varying: frozenset[str],
        held: frozenset[str],
        path: str,
        order: tuple[int, ...],
    ) -> int:
        """The slot of what lies in another one, in a layout of its own."""
        key, slot = (source, layout, varying), self.slots[source]
        if key not in self._converted:
            changes = layout_changes(slot.type.shape, slot.layout, layout, varying - self.stages, self.mesh, held)
            self._converted[key] = self.add(Slot(slot.type, layout, varying))
            changes = tuple(changed(each, order=order) if isinstance(each, Cast) else each for each in changes)
            self.steps.append(Convert(source, self._converted[key], changes, path))
        return self._converted[key]

    def _nearest(self, ref: Ref, layout: Layout) -> int:
        """Where to read a value from: an argument as it was given where that sends nothing, unlike its layout here."""
        source, given = self.home[ref], self.given.get(ref)
        if given is None or not self._sends(source, layout) or self._sends(given, layout):
            return source
        return given

    def _sends(self, slot: int, layout: Layout) -> bool:
        kind, have = self.slots[slot].type, self.slots[slot].layout
        changes = layout_changes(kind.shape, have, layout, layout.axes, self.mesh)
        return not all(isinstance(change, Cast | Slice) for change in changes)

    def _from_outside(
        self, ref: Ref, layout: Layout, varying: frozenset[str], path: str, order: tuple[int, ...]
    ) -> int:
        """Everything that does not depend on the turn happens outside, once; here a chunk is sliced."""
        assert self.parent is not None
        axis, wide = self.opened[-1], self.taken.get(ref)
        if wide is not None and wide != layout and self._holds(ref, wide, layout):
            source = self._from_outside(ref, wide, varying, path, order)
            return self._changed(source, layout, varying, frozenset(), path, order)
        outer = self.parent.convert(ref, outside(layout, axis), varying, path, order)
        if not streams(layout, axis):
            return self._input(outer, self.parent.slots[outer])
        known = self.parent.slots[outer]
        if rotates(layout, axis):
            return self._input(outer, Slot(known.type, layout, varying), rotates=True)
        # What is sliced is padded to whole chunks: who reads all of it, or slices it otherwise, has its own.
        source = self._input(outer, known, sliced=layout)
        key = (source, layout, varying)
        if key not in self._converted:
            self._converted[key] = self.add(Slot(known.type, layout, varying))
            self.steps.append(Convert(source, self._converted[key], self._slices(self._converted[key]), path))
        return self._converted[key]

    def _holds(self, ref: Ref, wide: Layout, layout: Layout) -> bool:
        """Whether a turn that has taken a piece in one layout has all that another one asks for."""
        kind, axis = self.graph.type_of(ref), self.opened[-1]
        if not (streams(wide, axis) and streams(layout, axis)):
            return False
        changes = layout_changes(kind.shape, wide, layout, layout.axes, self.mesh)
        return all(isinstance(change, Overlap) and not sends(change, self.mesh) for change in changes)

    def take_piece(self, outer: int, slot: int, path: str) -> None:
        """Fill a slot of this loop, before all steps, from a slot of the frame around: its piece in this turn."""
        assert self.parent is not None
        source = self.add(self.parent.slots[outer])
        self.inputs.append(source)
        self.operands.append(outer)
        self.steps.insert(0, Convert(source, slot, self._slices(slot), path))

    def _slices(self, slot: int) -> tuple[Slice, ...]:
        """How a turn finds a slot in what the frame around holds."""
        kind, axis = self.slots[slot], self.opened[-1]
        return tuple(
            Slice(number, turn_cut(cut, axis), kind.type.shape[number])
            for number, cut in enumerate(kind.layout.cuts)
            if cut is not None and axis in cut.axes
        )

    def enter(self, ref: Ref, layout: Layout, varying: frozenset[str], path: str) -> int:
        """The slot of a value that enters a pipeline: at the first stage its chunks, at others what was handed on."""
        assert self.parent is not None
        varying |= self.stages
        outer = self.parent.convert(ref, outside(layout, self.opened[-1]), varying, path)
        self.handed.append(len(self.inputs))
        self.inputs.append(self.add(Slot(self.graph.type_of(ref), layout, varying)))
        self.operands.append(outer)
        return self.inputs[-1]

    def _input(self, outer: int, slot: Slot, *, rotates: bool = False, sliced: Layout | None = None) -> int:
        key = (outer, slot.layout, sliced)
        if key not in self._imported:
            if rotates:
                self.rotating.append(len(self.inputs))
            self._imported[key] = self.add(slot)
            self.inputs.append(self._imported[key])
            self.operands.append(outer)
        return self._imported[key]

    def schedule(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Schedule:
        """What has been collected."""
        return Schedule(self.graph, self.mesh, tuple(self.slots), inputs, tuple(self.steps), outputs)
