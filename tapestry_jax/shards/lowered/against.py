"""What has to agree between blocks and a lowered program: how values lie, what is sent and merged, how loops turn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import field, replace
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.shards.lowered.layout import is_empty, laid
from tapestry_jax.shards.lowered.merged import fold_of, take_merge, take_scan, take_scattered
from tapestry_jax.shards.lowered.moved import Queue, refuse, take_move
from tapestry_jax.shards.lowered.sent import UNKNOWN_TURNS, Context, Lowered, lowered
from tapestry_jax.shards.parts import Block, Merge, Move, Present, Program, Repeat, Shared, Take
from tapestry_jax.shards.ranges import end_in_digits


def check_lowered(shared: Shared, program: Program, closed: Any) -> None:
    """Hold a traced program against blocks.

    Raises:
      PlanError: with the step, for the first thing that differs.
    """
    counts = {each.name: each.count for each in shared.coordinates if each.kind == "axis"}
    _check_digits(shared, program)
    found = lowered(closed, {*_paths(program)}, counts, {*_rings(program)})
    _check_ends(shared, program, found)
    walk = _Walk(shared, found, open_ended=frozenset(_open_ended(program)))
    walk.follow(program)
    # Before scans over the mesh and in time, passes over their loops find the totals: what stands there is sent again.
    for _ in range(_first_passes(shared, program)):
        again = {key for key, left in found.sent.items() if left}
        replace(walk, only=again).follow(program)
    for (path, context), left in found.sent.items():
        if left:
            refuse(path, "sends what no block asks for", f"{left[0]}, in loops of {_turns(context)}")
    walk.check_turns()


def _check_digits(shared: Shared, program: Program) -> None:
    """Lowered programs count devices and turns as digits are counted; of other blocks a jaxpr does not say enough."""
    counts = shared.counts
    for number, piece in enumerate(program.pieces):
        for axis, own in enumerate(piece.box):
            if end_in_digits(own, counts) is None:
                told = f"axis {axis} starts at {own.low} and goes on by {dict(own.steps)}, {own.count} at a time"
                refuse(program.name, f"has piece {number} in an order in which nothing is lowered", told)
    for step in program.steps:
        if isinstance(step, Repeat):
            _check_digits(shared, step.body)


def _paths(program: Program) -> Iterator[str]:
    for step in program.steps:
        yield getattr(step, "path", "")
        if isinstance(step, Repeat):
            yield from _paths(step.body)


def _rings(program: Program) -> Iterator[str]:
    """The loops in which pieces go round."""
    for step in program.steps:
        if isinstance(step, Move) and step.how == ("ring",):
            yield step.path
        if isinstance(step, Repeat):
            yield from _rings(step.body)


def _open_ended(program: Program) -> Iterator[str]:
    """The loops that end by a condition."""
    for step in program.steps:
        if isinstance(step, Repeat):
            if step.until:
                yield step.turn
            yield from _open_ended(step.body)


def _first_passes(shared: Shared, program: Program) -> int:
    """How many passes over loops may find totals alone: one for each scan over the mesh and in time."""
    kinds = shared.kinds
    found = sum(_first_passes(shared, step.body) for step in program.steps if isinstance(step, Repeat))
    for step in program.steps:
        if isinstance(step, Block):
            found += {kinds[axis].kind == "axis" for axis in step.chain} == {True, False}
    return found


def _check_ends(shared: Shared, program: Program, found: Lowered) -> None:
    takes = [step for step in program.steps if isinstance(step, Take)]
    # Constants that were lifted out of the program come first, and lie whole.
    constants = len(found.inputs) - len(takes)
    for lies, _ in found.inputs[:constants]:
        if any(lies):
            refuse(program.name, "takes a constant in pieces", f"got {lies}")
    given = found.inputs[constants:]
    for take, (lies, shape) in zip(takes, given, strict=True):
        _check_end(shared, program, take.result, f"argument {take.name}", lies, shape)
    for (name, piece), (lies, shape) in zip(program.outputs, found.outputs, strict=True):
        _check_end(shared, program, piece, f"result {name}", lies, shape)


def _check_end(
    shared: Shared, program: Program, piece: int, name: str, lies: Sequence[Any], shape: Sequence[int]
) -> None:
    box = program.pieces[piece].box
    wanted = laid(box, shared.kinds)
    if wanted != tuple(lies):
        refuse(name, "lies otherwise in the lowered program", f"expected {wanted}, got {tuple(lies)}")
    sizes = tuple(own.count for own in box)
    if sizes != tuple(shape):
        refuse(name, "has other pieces in the lowered program", f"expected {sizes}, got {tuple(shape)}")


@dataclass(frozen=True)
class _Walk:
    shared: Shared
    found: Lowered
    folds: dict[tuple[int, int, int], Any] = field(default_factory=dict[tuple[int, int, int], Any])
    only: Set[tuple[str, Context]] | None = None
    turns: dict[str, set[Context]] = field(default_factory=dict[str, set[Context]])
    open_ended: frozenset[str] = frozenset()

    def follow(self, program: Program, repeat: Repeat | None = None) -> None:
        """Account for what the steps of a program send, in their order."""
        for number, step in enumerate(program.steps):
            match step:
                case Move():
                    self._move(program, step, repeat)
                case Block():
                    self._block(program, step)
                case Merge():
                    after = program.steps[number + 1] if number + 1 < len(program.steps) else None
                    self._merge(program, step, after)
                case Repeat():
                    self.follow(step.body, step)
                case _:
                    pass

    def _contexts(self, loops: Sequence[str], path: str) -> list[Context]:
        """How often the loops around a step turn, in all ways in which it stands in them."""
        rings = [loop for loop in loops if self.shared.kinds[loop].kind == "ring"]
        seen = self.found.contexts.get(path, set())
        for turning in itertools.product((True, False), repeat=len(rings)):
            listed = list(self._listed(loops, {ring for ring, turns in zip(rings, turning, strict=True) if turns}))
            if all(any(got[: len(each)] == each for got in seen) for each in listed):
                return listed
        return list(self._listed(loops, set(rings)))

    def _listed(self, loops: Sequence[str], rotating: Set[str]) -> Iterator[Context]:
        kinds = self.shared.kinds
        options: list[list[Context]] = []
        for loop in loops:
            known = kinds[loop]
            if loop in self.open_ended:
                options.append([(UNKNOWN_TURNS,)])
            elif known.kind == "ring":
                # The last turn of what goes round is apart; where every device has all pieces, nothing goes round.
                options.append([(known.count - 1,), ()] if loop in rotating else [(known.count,)])
            elif known.kind == "pipeline":
                options.append([(known.count + math.prod(kinds[axis].count for axis in known.along) - 1,)])
            else:
                options.append([(known.count,)])
        for chosen in itertools.product(*options):
            yield tuple(turns for part in chosen for turns in part)

    def _queues(self, path: str, loops: Sequence[str]) -> Iterator[Queue]:
        yield from self._asked(path, self._contexts(loops, path))

    def _asked(self, path: str, contexts: Iterable[Context]) -> Iterator[Queue]:
        """What is sent at a path in some loops; of a further pass, where something is left."""
        for context in contexts:
            if self.only is None or (path, context) in self.only:
                yield Queue(path, self.found.sent.get((path, context), []))

    def _move(self, program: Program, step: Move, repeat: Repeat | None) -> None:
        source, result = program.pieces[step.source], program.pieces[step.result]
        kind = program.values[source.value].type
        if is_empty(source.box) or is_empty(result.box):
            return
        loops, path = result.loops, step.path
        if step.how == ("first stage",):
            self._handed(step, result)
            return
        if step.how == ("ring",):
            # What goes round is sent on at the end of all turns but the last.
            known = self.shared.kinds[loops[-1]]
            if known.count == 1:
                return
            around = self._contexts(loops[:-1], path)
            for queue in self._asked(path, [(*context, known.count - 1) for context in around]):
                take_move(self.shared, step, source, result, kind, queue)
            return
        for queue in self._queues(path, loops):
            if repeat is not None and not _begins(queue, step):
                queue = self._early(step, repeat, loops) or queue
            take_move(self.shared, step, source, result, kind, queue)

    def _early(self, step: Move, repeat: Repeat, loops: Sequence[str]) -> Queue | None:
        """What is sent for all iterations at once, before their loop."""
        for queue in self._queues(repeat.path, loops[:-1]):
            if _begins(queue, step):
                return Queue(queue.path, queue.sent, int(_is_slice(step.source, repeat)))
        return None

    def _handed(self, step: Move, result: Any) -> None:
        known = self.shared.kinds[result.loops[-1]]
        stages = math.prod(self.shared.counts[axis] for axis in known.along)
        axes = [axis for axis in known.along if self.shared.counts[axis] > 1]
        for queue in self._queues(step.path, result.loops) if stages > 1 else ():
            got = queue.take("permute", axes, "hands chunks to the next stage")
            if set(got.pairs) != {(stage, stage + 1) for stage in range(stages - 1)}:
                refuse(step.path, "hands chunks to another stage than the next", f"got {got}")

    def _block(self, program: Program, step: Block) -> None:
        if any(program.pieces[piece].partial for piece in step.results):
            first = program.pieces[step.results[0]]
            self.folds[(id(program), first.value, first.substep)] = step
        if any(is_empty(program.pieces[piece].box) for piece in step.results):
            return
        if all(math.prod(value.type.shape) for value in program.values):
            # Loops that would give no cells are not lowered at all.
            self.turns.setdefault(step.path, set()).update(self._contexts(step.loops, step.path))
        kinds = self.shared.kinds
        axes = [axis for axis in step.chain if kinds[axis].kind == "axis" and kinds[axis].count > 1]
        if axes:
            # Totals are exchanged in front of the outermost loop that the scan goes along.
            loops = list(itertools.takewhile(lambda loop: loop not in step.chain, step.loops))
            leaves = fold_of(self.shared, program, step).leaves
            reverse = self.shared.operations[step.runs].reverse
            for queue in self._queues(step.path, loops):
                take_scan(leaves, axes, self.shared.counts, reverse, queue)

    def _merge(self, program: Program, step: Merge, after: Any) -> None:
        kinds = self.shared.kinds
        axes = [axis for axis in step.over if kinds[axis].kind == "axis" and kinds[axis].count > 1]
        first, result = program.pieces[step.sources[0]], program.pieces[step.results[0]]
        if not axes:
            return
        block = self.folds[(id(program), first.value, first.substep)]
        nothing = any(own.limit[0] >= own.limit[1] for _, own in block.box)
        if isinstance(after, Present) and is_empty(program.pieces[after.results[0]].box):
            return
        for queue in self._queues(step.path, result.loops):
            if isinstance(after, Present) and (dim := self._scattered(program, after, axes)) is not None:
                if not nothing:
                    take_scattered(axes, dim, queue)
            else:
                take_merge(fold_of(self.shared, program, block), axes, queue, nothing)

    def _scattered(self, program: Program, step: Present, axes: Sequence[str]) -> int | None:
        boxes = program.pieces[step.sources[0]].box, program.pieces[step.results[0]].box
        if len(boxes[0]) != len(boxes[1]):
            return None
        before, after = (laid(box, self.shared.kinds) for box in boxes)
        return next((dim for dim, own in enumerate(after) if set(own) & set(axes) and own != before[dim]), None)

    def check_turns(self) -> None:
        """Operations run in the loops in which their blocks stand, and in no other.

        Raises:
          PlanError: where a loop turns otherwise.
        """
        for path, wanted in self.turns.items():
            for got in self.found.contexts.get(path, ()):
                if not any(_agree(got, each) for each in wanted):
                    told = f"expected {' or '.join(map(_turns, sorted(wanted)))}, got {_turns(got)}"
                    refuse(path, "runs in loops that turn otherwise", told)
            for each in wanted:
                found = self.found.contexts.get(path, set())
                if found and not any(got[: len(each)] == each for got in found):
                    told = f"expected {_turns(each)}, got {' or '.join(map(_turns, sorted(found)))}"
                    refuse(path, "is not run in all loops of its blocks", told)


def _begins(queue: Queue, step: Move) -> bool:
    """Whether what is sent next may belong to a move: by its kind, and the mesh axes along which pieces differ."""
    kinds = {"all-gather": "gather", "all-to-all": "exchange", "neighbours": "permute", "slice": "slice"}
    if not queue.sent or queue.sent[0].kind not in {kinds.get(how, "sum") for how in step.how}:
        return False
    return queue.sent[0].kind == "slice" or not set(queue.sent[0].axes).isdisjoint(step.over)


def _is_slice(piece: int, repeat: Repeat) -> bool:
    """Whether a piece of the body of a loop comes from the slices that the loop hands it."""
    made = {step.result: step.source for step in repeat.body.steps if isinstance(step, Move)}
    while piece in made:
        piece = made[piece]
    taken = [step.result for step in repeat.body.steps if isinstance(step, Take)]
    return piece in taken and 0 <= taken.index(piece) - repeat.carries < len(repeat.axes)


def _agree(got: Context, wanted: Context) -> bool:
    """Whether one is the other with loops of the kernel inside, or with what stands still taken out of loops."""
    common = min(len(got), len(wanted))
    return got[:common] == wanted[:common]


def _turns(context: Context) -> str:
    return " x ".join(map(str, context)) or "no loop"
