"""A schedule written out as a sharded graph: what every step reads and makes, as boxes of tensors.

Loops in time are not nested here: what stands in one has the loop among its coordinates, and what leaves it is moved,
or merged, along it. Loops of the program are: their bodies are programs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Loop, Ref, Rename
from combinators.index_space.tensor_type import TensorType
from combinators.operations.execute import axis_modes
from combinators.operations.operation import Operation
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.folding.merges import merges
from tapestry_jax.planning.geometry.changes import Cast, Change, Deal, Exchange, Gather, Overlap, Reorder, Share, Slice
from tapestry_jax.planning.geometry.hops import sent_hops
from tapestry_jax.planning.geometry.layout import Cut, Layout
from tapestry_jax.planning.geometry.time_axis import in_space, ring_of, turns_of
from tapestry_jax.planning.scheduling.reads import fold_axes
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule
from tapestry_jax.shards import parts
from tapestry_jax.shards.parts import (
    Block,
    Coordinate,
    Merge,
    Move,
    Next,
    Piece,
    Present,
    Program,
    Read,
    Take,
    Value,
    View,
)
from tapestry_jax.shards.ranges import Range
from tapestry_jax.shards.writing.layouts import box_of, index_box, range_of
from tapestry_jax.shards.writing.matched import Origin, Origins, origins
from tapestry_jax.shards.writing.reading import read_boxes
from tapestry_jax.shards.writing.tables import Common, Tables


def written(program: Graph, schedule: Schedule) -> tuple[parts.Shared, Program]:
    """Write a schedule out as blocks.

    Args:
      program: as it was traced.
      schedule: of the program, which may have been rewritten.

    Raises:
      PlanError: for what no sharded graph says yet.
    """
    common = Common.of(schedule.mesh)
    writer = _Writer(common, Tables.of(program), origins(program, schedule.graph), schedule)
    inputs = [index for index, node in enumerate(program.nodes) if isinstance(node, Input)]
    for index, slot in zip(inputs, schedule.inputs, strict=True):
        writer.take(index, slot)
    writer.run()
    return common.shared, writer.tables.program(writer.outputs())


@dataclass(frozen=True)
class _Writer:
    """Writes the steps of one schedule; those of a loop in time go to the tables of what is around it."""

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

    # Values and pieces

    def take(self, node: int, slot: int) -> None:
        """An argument of the program, or what the body of a loop takes in."""
        value = self.tables.refs[Ref(node, 0)]
        self.held[slot] = self._piece(value, slot)
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

    def _piece(self, value: int, slot: int, **changes: object) -> int:
        kind, layout = self.schedule.slots[slot].type, self.schedule.slots[slot].layout
        box = self._box_of(layout, kind.shape)
        return self.tables.piece(replace(Piece(value, box, self.loops), **changes))

    def _real(self, axes: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.called.get(axis, axis) for axis in self.common.mesh.real(axes))

    # Loops of one name may be of two kinds, a pipeline and chunks: their coordinates have names of their own.

    def _named(self, own: Range) -> Range:
        return replace(own, steps=tuple((self.called.get(name, name), step) for name, step in own.steps))

    def _range_of(self, cut: Cut | None, size: int) -> Range:
        return self._named(range_of(cut, size, self.common.mesh))

    def _box_of(self, layout: Layout, shape: Sequence[int]) -> tuple[Range, ...]:
        return tuple(map(self._named, box_of(layout, shape, self.common.mesh)))

    def _index_box(self, cuts: dict[str, Cut], sizes: Mapping[str, int]) -> tuple[tuple[str, Range], ...]:
        return tuple((dim, self._named(own)) for dim, own in index_box(cuts, sizes, self.common.mesh))

    # Steps

    def run(self) -> None:
        """Write all steps."""
        for step in self.schedule.steps:
            match step:
                case Convert():
                    self._convert(step)
                case Run():
                    self._run(step)
                case Finish():
                    self._finish(step)
                case Region():
                    self._region(step)
                case Repeat():
                    self._repeat(step)

    def _convert(self, step: Convert) -> None:
        if step.source in self.totals:
            self.totals.add(step.result)
            return
        source = self.held[step.source]
        self.held[step.result] = self._moved(source, step.result, step.changes, step.path)

    def _moved(self, source: int, slot: int, changes: Sequence[Change], path: str) -> int:
        """The piece of a slot that another piece becomes."""
        known, tables = self.tables.pieces[source], self.tables
        kind, layout = self.schedule.slots[slot].type, self.schedule.slots[slot].layout
        box = self._box_of(layout, kind.shape)
        shares = any(isinstance(change, Share) for change in changes)
        if box == known.box and not shares:
            return source
        loops = self.loops if len(self.loops) > len(known.loops) else known.loops
        result = tables.piece(replace(known, box=box, loops=loops, only=() if shares else known.only))
        over = dict.fromkeys(axis for change in changes for axis in self._sent_over(change))
        how = tuple(name for change in changes for name in _names(change))
        tables.steps.append(Move(path, source, result, tuple(over), how))
        return result

    def _sent_over(self, change: Change) -> tuple[str, ...]:
        match change:
            case Gather(_, axes, _, _) | Share(axes):
                return self._real(axes)
            case Exchange(_, _, _, _, cut) | Deal(_, cut):
                return self._real(cut.axes)
            case Overlap(_, _, cut, _):
                return self._real(in_space(cut.axes)) if sent_hops(change, self.common.mesh) else ()
            case Cast() | Slice() | Reorder():
                return ()

    def _run(self, step: Run) -> None:
        origin = self.origins.nodes[step.node]
        if origin.node is None:
            self.held[step.results[0]] = self.held[step.operands[0]]
            return
        node = self.tables.graph.nodes[origin.node]
        assert isinstance(node, Apply)
        shaped, cuts = self.schedule.graph.shaped(step.node), dict(step.cuts)
        reads = self._reads(step, node, origin, shaped, cuts)
        makes = tuple(self.tables.refs[Ref(origin.node, number)] for number in range(len(node.results)))
        axes = self._real(fold_axes(shaped, cuts))
        over = shaped.operation.over
        chain = self._real(cuts[over].axes) if over in cuts else ()
        block = Block(
            step.path,
            self.common.operation(node.operation),
            self.common.operation(_runs(self.schedule.graph, step.node)),
            node.names,
            self._index_box(cuts, shaped.sizes),
            self.loops,
            reads,
            makes,
            (),
            chain,
            origin.substep,
        )
        if axes:
            state = self._state(step, shaped, cuts, axes, origin.substep)
            self.tables.steps.append(replace(block, results=state))
            if step.carried:
                self.held.update(zip(step.results, state, strict=True))
            else:
                self._present(step, makes, self._merged(step, shaped, state, in_space(axes)), origin.substep)
            return
        made = step.results[: len(makes)]
        results = tuple(
            self._piece(value, slot, substep=origin.substep) for value, slot in zip(makes, made, strict=True)
        )
        self.held.update(zip(made, results, strict=True))
        self.totals.update(step.results[len(makes) :])
        self.tables.steps.append(replace(block, results=results))

    def _reads(self, step: Run, node: Apply, origin: Origin, shaped: Shaped, cuts: dict[str, Cut]) -> tuple[Read, ...]:
        dims = dict(self._index_box(cuts, shaped.sizes))
        shapes = [self.tables.graph.type_of(ref).shape for ref in node.operands]
        boxes = read_boxes(shaped.signature, axis_modes(shaped), shapes, shaped.sizes, dims)
        gathers, found = dict(step.gathers), list[Read]()
        for number, (ref, slot, box) in enumerate(zip(node.operands, step.operands, boxes, strict=False)):
            piece = self.held[slot]
            if number in gathers:
                piece = self._gathered(piece, gathers[number], box, step.path)
            found.append(Read(self.as_value(piece, ref, origin.substep), box))
        return tuple(found)

    def _gathered(self, piece: int, changes: Sequence[Change], box: tuple[Range, ...], path: str) -> int:
        result = self.tables.piece(replace(self.tables.pieces[piece], box=box, loops=self.loops))
        over = dict.fromkeys(axis for change in changes for axis in self._sent_over(change))
        how = tuple(name for change in changes for name in _names(change))
        self.tables.steps.append(Move(path, piece, result, tuple(over), how))
        return result

    # Folds

    def _state(
        self, step: Run, shaped: Shaped, cuts: dict[str, Cut], axes: tuple[str, ...], substep: int
    ) -> tuple[int, ...]:
        """Pieces of the leaves of a state, still in pieces over some coordinates."""
        tables = self.tables
        if step.node not in self.states:
            kinds = [TensorType.make((None,) * len(leaf.shape), leaf.shape, leaf.dtype) for leaf in shaped.state]
            self.states[step.node] = tuple(tables.value(Value(kind, step.path, state=True)) for kind in kinds)
        found: list[int] = []
        for value, leaf, names in zip(self.states[step.node], shaped.state, shaped.carrier, strict=True):
            box = tuple(self._range_of(cuts.get(name), size) for name, size in zip(names, leaf.shape, strict=True))
            found.append(tables.piece(Piece(value, box, self.loops, axes, substep)))
        return tuple(found)

    def _merged(
        self,
        step: Run | Finish | Region,
        shaped: Shaped,
        state: tuple[int, ...],
        over: Sequence[str],
        turns: bool = False,
    ) -> tuple[int, ...]:
        """The state merged along some coordinates."""
        real, tables = self._real(over), self.tables
        if not real:
            return state
        results: list[int] = []
        for piece in state:
            known = tables.pieces[piece]
            left = tuple(axis for axis in known.partial if axis not in real)
            loops = tuple(loop for loop in known.loops if loop not in real)
            results.append(tables.piece(replace(known, partial=left, loops=loops)))
        monoid = shaped.operation.monoid
        assert monoid is not None
        kinds = dict.fromkeys(merge.kind for merge in merges(monoid, shaped.state_tree))
        how = "turn by turn" if turns else ", ".join(_ROUTES.get(kind, "all-reduce") for kind in kinds)
        path = shaped.operation.name if isinstance(step, Region) else step.path
        tables.steps.append(Merge(path, state, tuple(results), real, how))
        return tuple(results)

    def _present(self, step: Run | Finish, makes: Sequence[int], state: tuple[int, ...], substep: int) -> None:
        results = tuple(
            self._piece(value, slot, substep=substep) for value, slot in zip(makes, step.results, strict=True)
        )
        self.held.update(zip(step.results, results, strict=True))
        self.tables.steps.append(Present(step.path, state, results))

    def _finish(self, step: Finish) -> None:
        shaped, origin = self.schedule.graph.shaped(step.node), self.origins.nodes[step.node]
        if shaped.operation.over is not None:
            self.totals.update(step.results)
            return
        assert origin.node is not None
        results = range(len(self.tables.graph.nodes[origin.node].results))
        makes = [self.tables.refs[Ref(origin.node, number)] for number in results]
        state = tuple(self.held[slot] for slot in step.operands)
        over = in_space(fold_axes(shaped, dict(step.cuts)))
        self._present(step, makes, self._merged(step, shaped, state, over), origin.substep)

    # Loops in time

    def _region(self, step: Region) -> None:
        if step.ends:
            # What a pass over all turns finds, for scans to begin with, is the chain of the scan itself.
            self.totals.update(step.results)
            return
        ring = ring_of(step.axis)
        kind = "pipeline" if step.stages else "turns" if ring is None else "ring"
        along = step.stages or ((ring,) if ring is not None else ())
        name = self.common.coordinate(Coordinate(step.axis, turns_of(step.axis), kind, along))
        inner = replace(
            self,
            schedule=step.body,
            loops=(*self.loops, name),
            held={},
            totals=set(),
            called={**self.called, step.axis: name},
        )
        self._take_in(step, inner)
        inner.run()
        folded, scanned = (sum(leaves for _, leaves in each) for each in (step.folds, step.scans))
        self._added_up(step, inner)
        self.totals.update(slot for slot in step.results if slot not in self.held)
        outputs = step.body.outputs[folded + scanned + len(step.handed) :]
        for slot, within in zip(step.results[folded:], outputs, strict=True):
            if within in inner.held:
                self.totals.discard(slot)
                self.held[slot] = self._put_together(step, inner.held[within], slot, name)

    def _take_in(self, step: Region, inner: _Writer) -> None:
        plain = len(step.body.inputs) - sum(leaves for _, leaves in step.scans)
        inner.totals.update(step.body.inputs[plain:])
        for number, (slot, operand) in enumerate(zip(step.body.inputs[:plain], step.operands, strict=False)):
            if operand in self.totals:
                inner.totals.add(slot)
            elif number in step.rotating:
                ring = ring_of(step.axis)
                assert ring is not None
                inner.held[slot] = inner._around(self.held[operand], slot, ring, step.path)
            elif number in step.handed:
                last = tuple((axis, 0) for axis in self._real(step.stages))
                known = self.tables.pieces[self.held[operand]]
                result = inner._piece(known.value, slot, substep=known.substep, only=last)
                self.tables.steps.append(Move(step.path, self.held[operand], result, (), ("first stage",)))
                inner.held[slot] = result
            else:
                inner.held[slot] = self.held[operand]

    def _around(self, source: int, slot: int, ring: str, path: str) -> int:
        known = self.tables.pieces[source]
        box = self._box_of(self.schedule.slots[slot].layout, self.schedule.slots[slot].type.shape)
        result = self.tables.piece(replace(known, box=box, loops=self.loops))
        self.tables.steps.append(Move(path, source, result, self._real((ring,)), ("ring",)))
        return result

    def _added_up(self, step: Region, inner: _Writer) -> None:
        start = 0
        for node, leaves in step.folds:
            slots = step.body.outputs[start : start + leaves]
            state = tuple(inner.held[slot] for slot in slots)
            shaped = self.schedule.graph.shaped(node)
            merged = inner._merged(step, shaped, state, (step.axis,), turns=True)
            self.held.update(zip(step.results[start : start + leaves], merged, strict=True))
            start += leaves

    def _put_together(self, step: Region, source: int, slot: int, name: str) -> int:
        """What the turns of a loop have made, side by side."""
        known = self.tables.pieces[source]
        box = self._box_of(self.schedule.slots[slot].layout, self.schedule.slots[slot].type.shape)
        loops = tuple(loop for loop in known.loops if loop != name)
        result = self.tables.piece(replace(known, box=box, loops=loops))
        self.tables.steps.append(
            Move(step.path, source, result, self.common.mesh.real((step.axis,)) and (name,), ("stack",))
        )
        return result

    # Loops of the program

    def _repeat(self, step: Repeat) -> None:
        origin = self.origins.nodes[step.node]
        assert origin.node is not None and origin.body is not None
        loop, tables = self.tables.graph.nodes[origin.node], self.tables
        assert isinstance(loop, Loop)
        coordinate = self.common.coordinate(Coordinate(f"%{step.path}", step.length, "turns"))
        inner = _Writer(
            self.common,
            Tables.of(loop.body),
            origin.body,
            step.body,
            (*self.loops, coordinate),
            loop.carries,
            called=self.called,
        )
        inputs = [index for index, node in enumerate(loop.body.nodes) if isinstance(node, Input)]
        for index, slot in zip(inputs, step.body.inputs, strict=True):
            inner.take(index, slot)
        for early in step.prologue:
            inner._convert(early)
        inner.run()
        body = inner.tables.program(inner.outputs())
        depth, stage = origin.body.depth, step.stage
        is_last = origin.first + step.length * depth >= loop.length or stage is not None
        operands: list[int] = []
        for number, (ref, slot) in enumerate(zip(loop.operands, step.operands, strict=True)):
            is_between = origin.first > 0 and number < loop.carries
            operands.append(self.held[slot] if is_between else self.as_value(self.held[slot], ref, origin.substep))
        makes = tuple(tables.refs[Ref(origin.node, number)] for number in range(len(loop.results)))
        values = makes
        if not is_last:
            values = tuple(tables.value(Value(kind, step.path, state=True)) for kind in loop.results)
        last = (
            ()
            if stage is None
            else tuple((axis, self.common.mesh.size((axis,)) - 1) for axis in self._real(stage.axes))
        )
        results: list[int] = []
        for number, (value, slot) in enumerate(zip(values, step.results, strict=True)):
            pinned = last if number < loop.carries else ()
            results.append(self._piece(value, slot, substep=origin.substep, only=pinned))
            self.held[slot] = results[-1]
        staged = None if stage is None else self._range_of(stage, loop.length)
        tables.steps.append(
            parts.Repeat(
                step.path,
                origin.node,
                coordinate,
                self.loops,
                body,
                origin.first,
                step.length,
                depth,
                loop.over,
                loop.carries,
                loop.axes,
                tuple(operands),
                makes,
                tuple(results),
                staged,
            )
        )


_ROUTES = {"frame": "frame", "ordered": "in order"}


def _runs(graph: Graph, index: int) -> Operation:
    node = graph.nodes[index]
    assert isinstance(node, Apply)
    return node.operation


def _names(change: Change) -> tuple[str, ...]:
    match change:
        case Cast():
            return ()
        case Slice():
            return ("slice",)
        case Gather():
            return ("all-gather",)
        case Exchange() | Deal():
            return ("all-to-all",)
        case Reorder():
            return ("reorder",)
        case Overlap():
            return ("neighbours",)
        case Share():
            return ("share",)
