"""The proof, step by step: every slot holds what its layout says, and every operation finds what it reads.

What lowering reads is read here: slots, layouts, changes, cuts, loops. What must hold is worked out anew, from the graph
and the cuts of its operations, and compared. So a schedule is right whoever made it, or this says where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from combinators.graph import Apply, Graph, Input, Loop, Ref, Rename
from combinators.shaped import Shaped
from tapestry_jax.planning.changes import Change, Share, Slice
from tapestry_jax.planning.coverage import check_covers
from tapestry_jax.planning.layout import Layout
from tapestry_jax.planning.proof.changed import changed
from tapestry_jax.planning.proof.folds import (
    added_up,
    check_finished,
    check_fold,
    check_merge,
    folded_axes,
    kept_pieces,
    scattered,
)
from tapestry_jax.planning.proof.holdings import (
    Entering,
    Holding,
    Leaving,
    OfLastStage,
    State,
    Value,
)
from tapestry_jax.planning.proof.needs import made_pieces, needed_pieces, state_pieces
from tapestry_jax.planning.proof.pieces import Piece, piece_of, pieces_of
from tapestry_jax.planning.proof.scans import (
    after_turn,
    begun,
    check_scan,
    entering_totals,
    leaving_totals,
    results_of,
)
from tapestry_jax.planning.proof.site import Site, check_same, refuse
from tapestry_jax.planning.proof.turns import check_loop, check_padding, closed, entering, put_together, rotated
from tapestry_jax.planning.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Slot
from tapestry_jax.planning.time_axis import in_space, in_time


def prove(schedule: Schedule) -> None:
    """Prove that a schedule computes its graph, for every device, turn and stage.

    Every index of every operation is computed exactly once. Every operation reads the value that the graph says, and of it
    the cells that its piece needs. States are merged once, of the same piece of all else, in an order that their monoid
    allows. Scans go on from what lies before. Every change leads from the one layout to the other.

    Raises:
      PlanError: naming an operation and boxes, where one of these does not hold.
    """
    inputs = [index for index, node in enumerate(schedule.graph.nodes) if isinstance(node, Input)]
    proof = _Proof(schedule, Site(schedule.mesh), "")
    for place, slot in zip(inputs, schedule.inputs, strict=True):
        node = schedule.graph.nodes[place]
        proof.give(slot, Value(Ref(place, 0)), node.path)
        _check_stored(schedule.slots[slot], node.path)
    proof.run()
    for (name, ref), slot in zip(schedule.graph.outputs, schedule.outputs, strict=True):
        path = f"output {name}"
        proof.check_value(slot, ref, path)
        _check_stored(schedule.slots[slot], path)


def _check_stored(slot: Slot, path: str) -> None:
    for cut in slot.layout.cuts:
        if cut is not None and (cut.striped or cut.window is not None or in_time(cut.axes)):
            refuse(path, "is stored in stripes, with an overlap, or in chunks", f"layout {slot.layout}")


class _Proof:
    """What the slots of one schedule hold, found step by step."""

    def __init__(self, schedule: Schedule, site: Site, prefix: str) -> None:
        self.schedule, self.site, self.prefix = schedule, site, prefix
        self.graph: Graph = schedule.graph
        self.known: dict[int, Holding] = {}

    def run(self) -> None:
        """Follow all steps."""
        for step in self.schedule.steps:
            match step:
                case Convert():
                    self.convert(step)
                case Run():
                    self._operate(step)
                case Finish():
                    self._finish(step)
                case Region():
                    self._region(step)
                case Repeat():
                    self._repeat(step)

    # Slots

    def give(self, slot: int, holding: Holding, path: str) -> None:
        """Fill a slot, whose layout must be one, and hold all of what it names."""
        if slot in self.known:
            refuse(path, "fills a slot that is filled already", f"slot {slot} holds {self.known[slot]}")
        kind, layout = self.schedule.slots[slot].type, self.schedule.slots[slot].layout
        for number, (cut, size) in enumerate(zip(layout.cuts, kind.shape, strict=True)):
            if cut is None:
                continue
            self.site.check_axes(cut.axes, path)
            step, count = (1, size) if cut.window is None else (cut.window.step, cut.window.count)
            if cut.block // step * self.site.mesh.size(cut.axes) < count:
                end = cut.block // step * self.site.mesh.size(cut.axes)
                refuse(path, f"stores axis {number} of {kind} with a gap", f"nobody holds [{end}:{count}]")
        if isinstance(holding, Value) and kind.struct != self.graph.type_of(holding.ref).struct:
            refuse(path, "stores a value as another type", f"{kind}, not {self.graph.type_of(holding.ref)}")
        self.known[slot] = holding

    def holding(self, slot: int, path: str) -> Holding:
        """What a slot holds by now."""
        if slot not in self.known:
            refuse(path, "reads a slot that nothing has filled", f"slot {slot}")
        return self.known[slot]

    def pieces(self, slot: int) -> list[Piece]:
        """What the layout of a slot says."""
        known = self.schedule.slots[slot]
        return pieces_of(known.layout, known.type.shape, self.site.mesh)

    def source(self, ref: Ref) -> Ref:
        """The value itself, whatever it has been renamed to."""
        node = self.graph.nodes[ref.node]
        return self.source(node.operands[0]) if isinstance(node, Rename) else ref

    def check_value(self, slot: int, ref: Ref, path: str) -> None:
        """A slot holds the value that the graph names."""
        held, wanted = self.holding(slot, path), Value(self.source(ref))
        if held != wanted:
            refuse(path, "reads another value than its graph names", f"expected {wanted}", f"got {held}")

    def check_made(self, slot: int, made: Sequence[Piece], path: str, what: str) -> None:
        """The layout of a slot says what has been made for it."""
        check_same(self.site, path, what, made, self.pieces(slot), ("makes", "stores"))

    # Changes of layout

    def convert(self, step: Convert, into: bool = True) -> None:
        """A change of layout leads from one layout to the other, and changes no value."""
        schedule, held = self.schedule, self.holding(step.source, step.path)
        before, after = schedule.slots[step.source], schedule.slots[step.result]
        if before.type.struct != after.type.struct:
            refuse(step.path, "converts a value into another type", f"{before.type}, then {after.type}")
        made = self._changed(step.source, step.changes, step.path)
        self.check_made(step.result, made, step.path, "converts an operand into another layout than it says")
        shares = [change for change in step.changes if isinstance(change, Share)]
        for share in shares:
            if held != OfLastStage(getattr(held, "ref", Ref(-1, 0)), share.axes):
                refuse(step.path, f"shares what the last device along ({', '.join(share.axes)}) holds", f"got {held}")
            held = Value(held.ref)
        if isinstance(held, OfLastStage):
            refuse(step.path, "reads on all devices what the last stage alone has made", f"got {held}")
        self.give(step.result, held, step.path)

    def _changed(self, slot: int, changes: Sequence[Change], path: str) -> list[Piece]:
        shape = self.schedule.slots[slot].type.shape
        for change in changes:
            if isinstance(change, Slice) and change.size != shape[change.axis]:
                refuse(path, f"slices an axis of {shape[change.axis]} cells as one of {change.size}")
        return changed(self.pieces(slot), changes, shape, self.site, path)

    # Operations

    def _apply(self, node: int, path: str) -> tuple[Apply, Shaped]:
        found = self.graph.nodes[node]
        if not isinstance(found, Apply):
            refuse(path, "runs what is no operation", f"node {node} of the graph")
        return found, self.graph.shaped(node)

    def _check_cuts(self, step: Run | Finish, shaped: Shaped) -> None:
        cuts, signature = dict(step.cuts), shaped.signature
        for dim, cut in cuts.items():
            if dim not in shaped.sizes or signature.role(dim) == "whole":
                refuse(step.path, f"cuts `{dim}`, which it needs as a whole", f"signature {signature}")
            self.site.check_axes(cut.axes, step.path)
            if signature.role(dim) != "fold" and any(dim not in each.names for each in _spelled(shaped)):
                refuse(step.path, f"cuts `{dim}`, which not every result carries", f"signature {signature}")
        missing = {axis for cut in cuts.values() for axis in in_space(cut.axes)} - step.axes
        if missing:
            refuse(step.path, f"is cut over `{min(missing)}`, along which its blocks are said to be equal")

    def _operate(self, step: Run) -> None:
        node, shaped = self._apply(step.node, step.path)
        cuts, site, path = dict(step.cuts), self.site, step.path
        self._check_cuts(step, shaped)
        check_covers(path, cuts, shaped.sizes, site.mesh)
        given, before = step.operands[: len(node.operands)], step.operands[len(node.operands) :]
        if len(given) != len(node.operands):
            refuse(path, f"reads {len(given)} operands of its {len(node.operands)}")
        self._check_reads(step, node, shaped, given)
        fold = bool(shaped.signature.fold_dims)
        over = shaped.operation.over
        if before and not (step.carried and over is not None):
            refuse(path, f"is given {len(before)} operands more than it reads")
        if fold and folded_axes(shaped, cuts, site):
            self._partial(step, shaped)
        elif over is not None and over in cuts:
            self._scan(step, shaped, before)
        else:
            self._store(
                step, self._results(step, shaped), [Value(Ref(step.node, n)) for n in range(len(shaped.results))]
            )

    def _check_reads(self, step: Run, node: Apply, shaped: Shaped, given: Sequence[int]) -> None:
        shapes = [self.graph.type_of(ref).shape for ref in node.operands]
        needs = needed_pieces(shaped, dict(step.cuts), shapes, self.site, step.path)
        gathers = dict(step.gathers)
        for number, (slot, ref, need) in enumerate(zip(given, node.operands, needs, strict=True)):
            self.check_value(slot, ref, step.path)
            held = self._changed(slot, gathers.get(number, ()), step.path)
            what = f"reads other cells of operand {number} than it holds"
            check_same(self.site, step.path, what, need, held, ("reads", "holds"))

    def _results(self, step: Run | Finish, shaped: Shaped) -> list[list[Piece]]:
        cuts = dict(step.cuts)
        listed = zip(shaped.result_axes, shaped.results, strict=True)
        return [made_pieces(axes, kind.shape, shaped.sizes, cuts, self.site, step.path) for axes, kind in listed]

    def _store(self, step: Run | Finish, made: Sequence[Sequence[Piece]], holdings: Sequence[Holding]) -> None:
        if not len(step.results) == len(made) == len(holdings):
            refuse(step.path, f"stores {len(step.results)} results of its {len(made)}")
        for number, (slot, pieces, holding) in enumerate(zip(step.results, made, holdings, strict=True)):
            self.check_made(slot, pieces, step.path, f"makes other cells of result {number} than it stores")
            self.give(slot, holding, step.path)

    def _states(self, step: Run | Finish, shaped: Shaped, without: str | None = None) -> list[list[Piece]]:
        """What a device makes of every leaf of a state, or of a total, `without` the dimension that it scans."""
        found: list[list[Piece]] = []
        for names, leaf in zip(shaped.carrier, shaped.state, strict=True):
            kept = [(name, size) for name, size in zip(names, leaf.shape, strict=True) if name != without]
            sizes = [size for _, size in kept]
            found.append(state_pieces([name for name, _ in kept], sizes, dict(step.cuts), self.site.mesh))
        return found

    def _partial(self, step: Run, shaped: Shaped) -> None:
        """A fold whose dimensions are in pieces: its states are merged at once, or handed to the loops around."""
        cuts = dict(step.cuts)
        axes = folded_axes(shaped, cuts, self.site)
        check_fold(shaped, cuts, step.path)
        if step.carried:
            states = [State(step.node, leaf, axes) for leaf in range(len(shaped.state))]
            self._store(step, self._states(step, shaped), states)
            return
        if in_time(axes):
            check_finished([State(step.node, 0, axes)], in_space(axes), shaped, step.path)
        self._merged(step, shaped, axes)

    def _merged(self, step: Run | Finish, shaped: Shaped, axes: tuple[str, ...]) -> None:
        kept = kept_pieces(shaped, dict(step.cuts), self.site, shaped.signature.fold_dims)
        check_merge(shaped, kept, axes, self.site, step.path)
        made = self._results(step, shaped)
        if step.scatter is not None:
            scattered(made[0], step.scatter, axes, shaped, self.site, step.path)
        self._store(step, made, [Value(Ref(step.node, number)) for number in range(len(made))])

    def _finish(self, step: Finish) -> None:
        _, shaped = self._apply(step.node, step.path)
        held = [self.holding(slot, step.path) for slot in step.operands]
        over = shaped.operation.over
        if over is not None:
            check_scan(shaped, dict(step.cuts), self.site, step.path)
            self._check_states(step, self._states(step, shaped, over))
            self._store(step, self._states(step, shaped, over), begun(shaped, step.node, held, step.path))
            return
        states = [each for each in held if isinstance(each, State)]
        if [(each.node, each.leaf) for each in states] != [(step.node, leaf) for leaf in range(len(shaped.state))]:
            refuse(step.path, "presents other states than its own", *(f"got {each}" for each in held[:2]))
        axes = in_space(folded_axes(shaped, dict(step.cuts), self.site))
        check_finished(states, axes, shaped, step.path)
        self._check_states(step, self._states(step, shaped))
        self._merged(step, shaped, axes)

    def _check_states(self, step: Finish, needed: Sequence[Sequence[Piece]]) -> None:
        for number, (slot, pieces) in enumerate(zip(step.operands, needed, strict=True)):
            what = f"merges another piece of leaf {number} of its state than it holds"
            check_same(self.site, step.path, what, pieces, self.pieces(slot), ("merges", "holds"))

    def _scan(self, step: Run, shaped: Shaped, before: Sequence[int]) -> None:
        cuts, over = dict(step.cuts), shaped.operation.over
        assert over is not None
        check_scan(shaped, cuts, self.site, step.path)
        made = self._results(step, shaped)
        values: list[Holding] = [Value(Ref(step.node, number)) for number in range(len(made))]
        if not step.carried:
            if in_time(cuts[over].axes):
                refuse(step.path, f"begins anew in every turn over `{over}`", "it does not go on from the turn before")
            self._store(step, made, values)
            return
        totals = self._states(step, shaped, over)
        holdings = [self.holding(slot, step.path) for slot in before]
        after, own = after_turn(shaped, cuts, step.node, holdings, step.path)
        for number, (slot, pieces) in enumerate(zip(before, totals, strict=True)):
            what = f"goes on from another piece of leaf {number} of its total than it holds"
            check_same(self.site, step.path, what, pieces, self.pieces(slot), ("goes on from", "holds"))
        self._store(step, [*made, *totals], [*results_of(own, step.node, values), *after])

    # Loops

    def _inner(self, body: Schedule, site: Site) -> _Proof:
        return _Proof(body, site, self.prefix)

    def _region(self, step: Region) -> None:
        check_loop(step, self.site)
        body, path = step.body, step.path
        scanned = sum(leaves for _, leaves in step.scans)
        plain = len(body.inputs) - scanned
        starts = [self.holding(slot, path) for slot in step.operands[plain:]]
        if len(step.operands) < plain or (body.mesh, body.graph) != (self.schedule.mesh, self.graph):
            refuse(path, "runs a body of another program")
        inner = self._inner(body, self.site.inside(step.axis, step.stages))
        handed = self._take_in(step, inner, plain)
        for slot, total in zip(body.inputs[plain:], entering_totals(step, starts), strict=True):
            inner.give(slot, total, path)
        for slot, operand in zip(body.inputs[plain:], step.operands[plain:], strict=False):
            what = "begins with another piece of a total than it is given"
            check_same(self.site, path, what, inner.pieces(slot), self.pieces(operand), ("begins with", "is given"))
        self._check_directions(step)
        check_padding(step, [self.pieces(slot) for slot in step.operands[:plain]], self.site)
        inner.run()
        self._give_back(step, inner, handed)

    def _take_in(self, step: Region, inner: _Proof, plain: int) -> list[Ref]:
        """Fill the inputs of a loop's body; returns the values that enter a pipeline."""
        body, handed = step.body, list[Ref]()
        for number, (slot, operand) in enumerate(zip(body.inputs[:plain], step.operands, strict=False)):
            held, outer = self.holding(operand, step.path), self.pieces(operand)
            if self.schedule.slots[operand].type.struct != body.slots[slot].type.struct:
                refuse(step.path, "hands its turns a value of another type", f"operand {number}")
            if number in step.rotating:
                outer = rotated(outer, step.axis, self.site, step.path)
            elif number in step.handed:
                layout, shape = body.slots[slot].layout, body.slots[slot].type.shape
                outer = entering(outer, layout, shape, step.axis, inner.site, step.path)
                if not isinstance(held, Value):
                    refuse(step.path, "lets something enter a pipeline that is no value", f"got {held}")
                handed.append(held.ref)
                held = Entering(held.ref)
            what = f"hands its turns other cells of operand {number} than they expect"
            check_same(inner.site, step.path, what, inner.pieces(slot), outer, ("expects", "is handed"))
            if isinstance(held, OfLastStage):
                refuse(step.path, "reads on all devices what the last stage alone has made", f"got {held}")
            inner.give(slot, held, step.path)
        return handed

    def _check_directions(self, step: Region) -> None:
        for node, leaves in step.scans:
            _, shaped = self._apply(node, step.path)
            if shaped.operation.over is None or leaves != len(shaped.state):
                refuse(step.path, f"hands on {leaves} leaves of a total", f"node {node} of the graph")
            if shaped.operation.reverse != step.reverse:
                ways = ("from the first chunk to the last", "from the last chunk to the first")
                refuse(step.path, f"turns {ways[step.reverse]}, where its scan runs {ways[shaped.operation.reverse]}")

    def _give_back(self, step: Region, inner: _Proof, handed: Sequence[Ref]) -> None:
        body, path = step.body, step.path
        folded = sum(leaves for _, leaves in step.folds)
        scanned = sum(leaves for _, leaves in step.scans)
        made = [inner.holding(slot, path) for slot in body.outputs]
        totals = leaving_totals(step, made[folded : folded + scanned])
        results = list(made)
        results[:folded] = self._added_up(step, made[:folded])
        results[folded : folded + scanned] = totals
        self._check_totals_stay(step, inner, folded)
        inside = list(body.outputs)
        if not step.ends:
            through = folded + scanned + len(handed)
            self._check_handed(step, inner, handed)
            del results[folded:through], inside[folded:through]
        if len(results) != len(step.results):
            refuse(path, f"gives {len(step.results)} of {len(results)} results")
        kept = scanned if step.ends else folded
        for number, (slot, within, holding) in enumerate(zip(step.results, inside, results, strict=True)):
            found = inner.pieces(within)
            if number >= kept:
                found = put_together(found, body.slots[within], step.axis, inner.site, path)
            self.check_made(slot, found, path, f"puts result {number} together in another layout than it says")
            if isinstance(holding, Leaving):
                holding = OfLastStage(holding.ref, step.stages)
            left = closed(holding.left, self.site) if isinstance(holding, State) else ()
            if left:
                refuse(path, "hands out states that its turns have not added up", f"{holding}")
            self.give(slot, holding, path)

    def _added_up(self, step: Region, made: Sequence[Holding]) -> list[Holding]:
        wanted = [(node, leaf) for node, leaves in step.folds for leaf in range(leaves)]
        found: list[Holding] = []
        for (node, leaf), state in zip(wanted, made, strict=True):
            if not isinstance(state, State) or (state.node, state.leaf) != (node, leaf):
                refuse(step.path, f"adds up what is not leaf {leaf} of the state of node {node}", f"got {state}")
            found += added_up([state], step.axis, self._apply(node, step.path)[1], step.path)
        return found

    def _check_totals_stay(self, step: Region, inner: _Proof, folded: int) -> None:
        """A total, and a state, is of the same cells in every turn."""
        scanned = sum(leaves for _, leaves in step.scans)
        entering = step.body.inputs[len(step.body.inputs) - scanned :]
        for before, after in zip(entering, step.body.outputs[folded : folded + scanned], strict=True):
            what = "hands the next turn another piece of a total than it expects"
            pieces = inner.pieces(before), inner.pieces(after)
            check_same(inner.site, step.path, what, *pieces, ("expects", "is handed"))
        for slot in step.body.outputs[: folded + scanned]:
            if any(step.axis in dict(piece.digits) for piece in inner.pieces(slot)):
                refuse(step.path, "carries what is another piece in every turn", f"{inner.known[slot]}")

    def _check_handed(self, step: Region, inner: _Proof, handed: Sequence[Ref]) -> None:
        """Every stage hands on what the next one takes in."""
        for number, ref in enumerate(handed):
            sent, received = step.body.outputs[number], step.body.inputs[step.handed[number]]
            left = inner.holding(sent, step.path)
            loop = self.graph.nodes[left.ref.node] if isinstance(left, Leaving) else None
            same = isinstance(loop, Loop) and isinstance(left, Leaving) and left.ref.output < loop.carries
            if not same or not isinstance(loop, Loop) or not isinstance(left, Leaving):
                refuse(step.path, f"hands on what is no carry of its stages as carry {number}", f"got {left}")
            if self.source(loop.operands[left.ref.output]) != ref:
                refuse(step.path, f"hands carry {left.ref.output} on as another one", f"got {left}")
            what = f"hands on another piece of carry {number} than the next stage takes in"
            check_same(
                inner.site, step.path, what, inner.pieces(received), inner.pieces(sent), ("takes in", "is handed")
            )

    def _repeat(self, step: Repeat) -> None:
        path, loop = step.path, self.graph.nodes[step.node]
        if not isinstance(loop, Loop) or step.body.graph != loop.body or step.body.mesh != self.schedule.mesh:
            refuse(path, "runs a body of another program")
        self._check_turns(step, loop)
        inner = self._inner(step.body, self.site)
        places = [index for index, node in enumerate(loop.body.nodes) if isinstance(node, Input)]
        listed = zip(step.operands, step.body.inputs, loop.operands, places, strict=True)
        for number, (operand, slot, ref, place) in enumerate(listed):
            layout = self.schedule.slots[operand].layout
            self._check_carry(step, number, operand, ref)
            sliced = number - step.carries
            if 0 <= sliced < len(step.axes):
                at = step.axes[sliced]
                if piece_of(layout.cuts[at], loop.length, self.site.mesh) != piece_of(
                    step.stage, loop.length, self.site.mesh
                ):
                    refuse(path, f"takes slices of operand {number} that it does not hold", f"layout {layout}")
                layout = Layout(layout.cuts[:at] + layout.cuts[at + 1 :])
            found = pieces_of(layout, step.body.slots[slot].type.shape, self.site.mesh)
            what = f"hands its turns other cells of operand {number} than they expect"
            check_same(self.site, path, what, inner.pieces(slot), found, ("expects", "is handed"))
            inner.give(slot, Value(Ref(place, 0)), path)
        self._check_prologue(step)
        for early in step.prologue:
            inner.convert(early)
        inner.run()
        for number, ((name, ref), slot) in enumerate(zip(loop.body.outputs, step.body.outputs, strict=True)):
            inner.check_value(slot, ref, f"{path}/output {name}")
            found = inner.pieces(slot)
            if number < step.carries:
                what = f"hands the next turn another piece of carry {number} than it expects"
                expected = inner.pieces(step.body.inputs[number])
                check_same(self.site, path, what, expected, found, ("expects", "is handed"))
            else:
                found = [piece_of(step.stage, loop.length, self.site.mesh), *found]
            self.check_made(step.results[number], found, path, f"makes other cells of result {number} than it stores")
            carried = step.stage is not None and number < step.carries
            made = Leaving(Ref(step.node, number)) if carried else Value(Ref(step.node, number))
            self.give(step.results[number], made, path)

    def _check_turns(self, step: Repeat, loop: Loop) -> None:
        if (step.carries, step.axes) != (loop.carries, loop.axes):
            refuse(step.path, "carries, or slices, other operands than its loop")
        stage, stages = step.stage, self.site.stages
        if stage is None:
            if step.length != loop.length:
                refuse(step.path, f"turns {step.length} times, where its loop turns {loop.length} times")
            return
        if stage.axes != stages:
            refuse(step.path, f"has stages along ({', '.join(stage.axes)}), in a pipeline along ({', '.join(stages)})")
        turns = stage.block * self.site.mesh.size(stage.axes)
        if step.length != stage.block or step.layers != loop.length or turns < loop.length:
            refuse(step.path, f"turns {step.length} times in {turns} layers of its stages, of {loop.length} in all")

    def _check_carry(self, step: Repeat, number: int, operand: int, ref: Ref) -> None:
        if step.stage is None or number >= step.carries:
            self.check_value(operand, ref, step.path)
            return
        held = self.holding(operand, step.path)
        if held != Entering(self.source(ref)):
            refuse(step.path, f"takes in something else than carry {number}", f"got {held}")

    def _check_prologue(self, step: Repeat) -> None:
        """What runs once before the loop depends on constants alone, or changes no cell of a slice."""
        first = step.carries + len(step.axes)
        constants, slices = set(step.body.inputs[first:]), set(step.body.inputs[step.carries : first])
        for early in step.prologue:
            if early.source in slices and not self._moves(step.body, early):
                slices.add(early.result)
            elif early.source in constants:
                constants.add(early.result)
            else:
                refuse(early.path, f"is moved out of the loop `{step.path}`, although its turns differ")

    def _moves(self, body: Schedule, step: Convert) -> bool:
        return body.slots[step.source].layout != body.slots[step.result].layout


def _spelled(shaped: Shaped) -> list[_Names]:
    return [_Names(tuple(name for axis in axes for name in axis.names)) for axes in shaped.result_axes]


class _Names:
    """The dimensions of a result."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
