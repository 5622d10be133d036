"""From a schedule to passes over what is stored, and what stands between them on the device.

The outermost loops over a streamed dimension are turned by the host: what such a loop slices is read from storage, what
it puts together is written there, and all else (states, totals, what has not the dimension) stays on the device. A
change of layout of a stored value is no step here: it is another view of the same cells. Repetitions around such loops
are written out first (`planning/refining/written_out.py`): their turns are passes like others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from combinators.errors import PlanError, message
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.geometry.opening import streams
from tapestry_jax.planning.geometry.time_axis import dim_of, ring_of
from tapestry_jax.planning.refining.written_out import End, Placed, written_out
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Schedule, Step
from tapestry_jax.streaming.parts import Between, Ending, Made, Part, Pass, Piece, Split, blocks, read_by


def split(schedule: Schedule, dims: Sequence[str], *, folds_leave: bool = False) -> Split:
    """Let the host turn the outermost loops over some dimensions.

    Args:
      schedule: of a program.
      dims: the streamed dimensions.
      folds_leave: whether what folds come to is handed on even where only the steps behind it read it.

    Raises:
      PlanError: where a stored value is wanted whole, and for rings and pipelines over these dimensions.
    """
    return _Splitter(schedule, frozenset(dims), folds_leave=folds_leave).run()


class _Splitter:
    def __init__(self, given: Schedule, dims: frozenset[str], *, folds_leave: bool) -> None:
        schedule, self._steps = written_out(given, dims)
        self._schedule, self._dims, self._folds_leave = schedule, dims, folds_leave
        self._first = {slot: slot for slot in range(len(schedule.slots))}
        for step in schedule.steps:
            if isinstance(step, Convert):
                self._first[step.result] = self._first[step.source]
        self._loops = [step for step in schedule.steps if isinstance(step, Region) and self._is_streamed(step)]
        inputs = {*schedule.inputs}
        self._read = {
            self._first[outer] for loop in self._loops for _, outer in _sliced(loop) if self._first[outer] in inputs
        }
        self._made = {made.value for loop in self._loops for made in _made(loop)[0]}
        self._insides: dict[tuple[int, tuple[int, ...]], tuple[Schedule, Schedule]] = {}

    def run(self) -> Split:
        schedule = self._schedule
        parts: list[Pass | Placed | list[Placed]] = []
        loops = {*map(id, self._loops)}
        for placed in self._steps:
            step = placed.step
            if id(step) in loops:
                assert isinstance(step, Region)
                parts.append(self._pass(step))
            elif isinstance(step, End):
                self._check_end(step)
                parts.append(placed)
            elif not (isinstance(step, Convert) and self._is_stored(step.source)):
                self._check(step)
                last = parts[-1] if parts else None
                if isinstance(last, list) and (last[0].graph is placed.graph and last[0].scope == placed.scope):
                    last.append(placed)
                else:
                    parts.append([placed])
        outputs = tuple(self._first[slot] if self._is_stored(slot) else slot for slot in schedule.outputs)
        self._check_whole_inputs()
        stored = tuple(number for number, slot in enumerate(schedule.inputs) if slot in self._read)
        pieces = {piece.value for part in parts if isinstance(part, Pass) for piece in part.pieces}
        spilled = tuple(sorted(self._made & pieces))
        return Split(schedule, tuple(self._between(parts, outputs)), stored, outputs, spilled)

    def _is_streamed(self, step: Region) -> bool:
        if dim_of(step.axis) not in self._dims:
            return False
        for what, is_so in (("a pipeline", bool(step.stages)), ("a ring", ring_of(step.axis) is not None)):
            if is_so:
                details = (f"`{step.path}` keeps the pieces of `{dim_of(step.axis)}` on the devices",)
                remedy = f"Take it in chunks: {{{dim_of(step.axis)!r}: tp.chunks(...)}}."
                raise PlanError(message(f"a stream turns no {what[2:]}", *details, remedy=remedy))
        # What has no cells is made on the device, from nothing.
        return any(self._schedule.slots[slot].has_cells for slot in step.results)

    def _is_stored(self, slot: int) -> bool:
        return self._first[slot] in self._read or self._first[slot] in self._made

    def _pass(self, step: Region) -> Pass:
        sliced = {slot: outer for slot, outer in _sliced(step) if self._is_stored(outer)}
        body = step.body
        entering = len(body.inputs) - step.scanned
        given = list(zip(body.inputs[:entering], step.operands[:entering], strict=True))
        for slot, outer in given:
            if slot not in sliced and self._is_stored(outer):
                raise self._whole(self._first[outer], _reader(body, slot) or step.path)
        body = self._inside(body, tuple(sliced), entering)
        pieces = [
            Piece(inner.result, self._first[sliced[inner.source]])
            for inner in step.body.steps
            if isinstance(inner, Convert) and inner.source in sliced
        ]
        kept = [outer for slot, outer in given if slot not in sliced]
        made, still = _made(step)
        for each in made:
            _check_blocks(body, each.slot, step.path)
        region = replace(step, operands=(*kept, *step.operands[entering:]), body=body)
        return Pass(region, tuple(pieces), made, still, len(kept))

    def _inside(self, body: Schedule, sliced: tuple[int, ...], entering: int) -> Schedule:
        """The body without the slices of what is stored; one for all turns of a repetition, which are one program."""
        key = id(body), sliced
        if key not in self._insides:
            left = list[Step]()
            for inner in body.steps:
                if isinstance(inner, Convert) and inner.source in sliced:
                    _check_blocks(body, inner.result, inner.path)
                else:
                    left.append(inner)
            inputs = (*(slot for slot in body.inputs[:entering] if slot not in sliced), *body.inputs[entering:])
            # With the body itself, whose number no other one has as long as it is there.
            self._insides[key] = replace(body, inputs=inputs, steps=tuple(left)), body
        return self._insides[key][0]

    def _check(self, step: Step) -> None:
        """Refuse a step on the device that reads what is stored."""
        if any(self._schedule.slots[slot].has_cells for slot in step.results):
            stored = [slot for slot in step.operands if self._is_stored(slot)]
            if stored:
                raise self._whole(self._first[stored[0]], step.path, step)

    def _check_end(self, end: End) -> None:
        """Refuse repetitions that end when a condition holds, and whose state is stored."""
        stored = [slot for slot in end.carried if self._is_stored(slot) and self._schedule.slots[slot].has_cells]
        if stored:
            raise self._whole(self._first[stored[0]], end.repeat.path, end.repeat)

    def _check_whole_inputs(self) -> None:
        """Refuse inputs that have a streamed dimension which no loop cuts: they would lie on the device whole."""
        cells = {
            dim_of(loop.axis): next(blocks(loop.body, loop.axis), 0)
            for loop in _all_loops(self._schedule)
            if dim_of(loop.axis) in self._dims
        }
        for node, slot in zip(self._schedule.graph.inputs, self._schedule.inputs, strict=True):
            kind = self._schedule.slots[slot].type
            large = [n for n, size in zip(kind.names, kind.shape, strict=True) if n in cells and size > cells[n]]
            if slot not in self._read and large and kind.shape and 0 not in kind.shape:
                reader = next((s for s in self._schedule.steps if self._reads(s, slot)), None)
                if reader is not None:
                    raise self._whole(slot, reader.path, reader, node.name)

    def _reads(self, step: Step, slot: int) -> bool:
        if isinstance(step, Convert) and (step.enters or step.result in self._schedule.inputs):
            return False
        return any(self._first[each] == slot for each in step.operands)

    def _whole(self, value: int, path: str, step: Step | None = None, name: str | None = None) -> PlanError:
        names = dict(zip(self._schedule.inputs, (node.name for node in self._schedule.graph.inputs), strict=True))
        kind, dims = self._schedule.slots[value].type, ", ".join(sorted(self._dims))
        what = f"input {name or names[value]!r}" if value in names else "a value that a pass has made"
        why = [f"it {'repeats over' if isinstance(step, Repeat) else 'reads'} {what}, {kind}, whole"]
        remedy = "Stream a dimension that this operation can cut, or run it apart, on what it makes of a chunk."
        if isinstance(step, Repeat) and step.until:
            why.append(
                "it ends when a condition holds, and what it hands on is stored: only a state on the devices may end"
            )
            remedy = "Say how many: tp.iterate(step, 32); ask for the condition between two jobs."
        elif isinstance(step, Repeat) and (step.axes or len(step.results) > step.carries):
            why.append(
                "it takes a slice, or gives one, in every turn, and the host takes turns that hand on a carry alone"
            )
            remedy = "Write it as tp.iterate, or its turns one after the other."
        return PlanError(message(f"`{path}` cannot be streamed over {dims}", *why, remedy=remedy))

    def _between(self, parts: Sequence[Pass | Placed | list[Placed]], outputs: tuple[int, ...]) -> Iterator[Part]:
        known = _with_ends(parts)
        last = dict[int, int]()
        for number, part in enumerate(known):
            read = _operands(_steps(part)) if isinstance(part, list) else read_by(part)
            last |= dict.fromkeys(read, number)
        last |= dict.fromkeys(outputs, len(parts))
        for number, part in enumerate(known):
            if not isinstance(part, list):
                yield part
                continue
            steps = _steps(part)
            made = {slot for step in steps for slot in step.results}
            has_cells = [slot for slot in sorted(_operands(steps) - made) if not self._is_stored(slot)]
            later = {slot for slot in made if last.get(slot, -1) > number}
            if self._folds_leave:
                later |= {slot for step in steps if isinstance(step, Finish) for slot in step.results}
            inside = replace(
                self._schedule,
                graph=part[0].graph,
                inputs=tuple(has_cells),
                steps=steps,
                outputs=tuple(sorted(later)),
                again=(),
            )
            yield Between(inside, part[0].scope)


def _with_ends(parts: Sequence[Pass | Placed | list[Placed]]) -> list[Pass | Ending | list[Placed]]:
    """The same parts, ends of repetitions with the number of the part behind."""
    behind = dict[int, int]()
    for number, part in enumerate(parts):
        if isinstance(part, Placed) and isinstance(part.step, End):
            behind[part.step.number] = number + 1
    return [_ending(part, behind) if isinstance(part, Placed) else part for part in parts]


def _ending(placed: Placed, behind: Mapping[int, int]) -> Ending:
    end = placed.step
    assert isinstance(end, End)
    results = tuple(zip(end.carried, end.repeat.results, strict=True))
    return Ending(end.flag, results, behind[end.number], end.repeat.path, placed.scope)


def _steps(part: Sequence[Placed]) -> tuple[Step, ...]:
    return tuple(placed.step for placed in part if not isinstance(placed.step, End))


def _operands(steps: Iterable[Step]) -> set[int]:
    return {slot for step in steps for slot in step.operands}


def _sliced(step: Region) -> Iterator[tuple[int, int]]:
    """The inputs of the body of which turns take pieces, each with the operand outside."""
    sources = {inner.source for inner in step.body.steps if isinstance(inner, Convert) and _takes(inner, step.axis)}
    for slot, outer in zip(step.body.inputs, step.operands, strict=False):
        if slot in sources:
            yield slot, outer


def _takes(step: Convert, axis: str) -> bool:
    return bool(step.changes) and all(isinstance(c, Slice) and c.cut.axes == (axis,) for c in step.changes)


def _made(step: Region) -> tuple[tuple[Made, ...], tuple[Made, ...]]:
    """What the turns of a loop make piece by piece, and what each of them makes the same."""
    if step.ends:
        return (), ()
    folded, scanned = step.folded, step.scanned
    pairs = zip(step.body.outputs[folded + scanned :], step.results[folded:], strict=True)
    found = [Made(slot, value) for slot, value in pairs]
    moving = [each for each in found if streams(step.body.slots[each.slot].layout, step.axis)]
    return tuple(moving), tuple(each for each in found if each not in moving)


def _reader(body: Schedule, slot: int) -> str | None:
    return next((step.path for step in body.steps if slot in step.operands), None)


def _all_loops(schedule: Schedule) -> Iterator[Region]:
    """Every loop in time, however deep inside."""
    for step in schedule.steps:
        if isinstance(step, Region):
            yield step
        if isinstance(step, Region | Repeat):
            yield from _all_loops(step.body)


def _check_blocks(body: Schedule, slot: int, path: str) -> None:
    """Refuse stripes, whose cells lie far apart in what is stored."""
    kind, layout = body.slots[slot].type, body.slots[slot].layout
    for name, cut in zip(kind.names, layout.cuts, strict=True):
        if cut is not None and cut.striped:
            details = (f"`{path}` has `{name}` in stripes, whose cells lie far apart in what is stored",)
            remedy = f"Place `{name}` on the mesh axes in blocks."
            raise PlanError(message("a stream reads and writes no stripes", *details, remedy=remedy))
