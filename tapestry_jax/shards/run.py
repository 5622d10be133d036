"""Running blocks one by one, in the order in which they are written: no mesh, no partitioner, no layout.

A second way from a plan to its values, to hold the lowered program against. Copies of a block on other devices are
computed once. It is slow, and meant for small tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis
from combinators.index_space.box import Box
from combinators.index_space.projection import Projection
from combinators.operations.execute import axis_modes, combine, present, run_blocks, scan_states, states
from combinators.operations.ready import plain
from combinators.operations.shaped import Shaped, shape
from tapestry_jax.shards.parts import Block, Merge, Move, Next, Piece, Present, Program, Repeat, Shared, Take, View
from tapestry_jax.shards.ranges import Intervals, Point, Range, answered, points

Held = dict[tuple[tuple[str, int], ...], Any]
"""Of one piece: an array of its cells for every device and turn that has others."""


def run(shared: Shared, program: Program, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Run a sharded graph on arrays of true sizes; returns its outputs, in their order.

    Raises:
      PlanError: where a block reads cells that its device does not have.
    """
    machine = _Machine(shared, program)
    takes = [step for step in program.steps if isinstance(step, Take)]
    for take, array in zip(takes, arrays, strict=True):
        machine.give(take.result, np.asarray(array))
    machine.follow()
    return [machine.whole(piece) for _, piece in program.outputs]


@dataclass(frozen=True)
class _Machine:
    shared: Shared
    program: Program
    held: dict[int, Held] = field(default_factory=dict[int, Held])
    folds: dict[tuple[int, int], Shaped] = field(default_factory=dict[tuple[int, int], Shaped])

    def give(self, piece: int, array: Any) -> None:
        """Fill a piece from the whole tensor."""
        known = self.program.pieces[piece]
        self.held[piece] = {key: array[np.ix_(*self.cells(known, point))] for key, point in self.places(known)}

    def whole(self, piece: int) -> Any:
        """The whole tensor from the pieces of all devices and turns."""
        known = self.program.pieces[piece]
        kind = self.program.values[known.value].type
        made = np.zeros(kind.shape, kind.dtype)
        for key, point in self.places(known):
            made[np.ix_(*self.cells(known, point))] = self.held[piece][key]
        return made

    def places(self, piece: Piece) -> Iterator[tuple[tuple[tuple[str, int], ...], dict[str, int]]]:
        """The devices and turns that hold other cells, or other states, than all before."""
        names = sorted({name for own in piece.box for name in own.coordinates} | set(piece.partial))
        for point in points(self.shared.counts, names):
            yield tuple(point.items()), point

    def cells(self, piece: Piece, point: Point) -> list[list[int]]:
        """The cells of the tensor that a device holds, axis by axis."""
        shape_ = self.program.values[piece.value].type.shape
        return [_listed(own, point, size) for own, size in zip(piece.box, shape_, strict=True)]

    def at(self, piece: int, point: Point) -> tuple[Any, list[list[int]]]:
        """What a device has of a piece, and which cells these are."""
        known = self.program.pieces[piece]
        names = sorted({name for own in known.box for name in own.coordinates} | set(known.partial))
        here = {name: point.get(name, 0) for name in names}
        return self.held[piece][tuple(here.items())], self.cells(known, here)

    def follow(self) -> None:
        """Run all steps."""
        for step in self.program.steps:
            match step:
                case Block():
                    self._block(step)
                case Move():
                    self._move(step.path, step.source, step.result, step.over)
                case Merge():
                    self._merge(step)
                case Present():
                    self._present(step)
                case View(path, source, result, _):
                    self._move(path, source, result, ())
                case Next(source, result):
                    self._move("next", source, result, ())
                case Repeat():
                    self._repeat(step)
                case Take():
                    pass

    def _move(self, path: str, source: int, result: int, over: Sequence[str]) -> None:
        known, wanted = self.program.pieces[source], self.program.pieces[result]
        found: Held = {}
        along = [name for name in over if any(name in own.coordinates for own in known.box)]
        for key, point in self.places(wanted):
            cells = self.cells(wanted, point)
            made = np.zeros([len(each) for each in cells], self.program.values[wanted.value].type.dtype)
            filled = np.zeros(made.shape, np.bool_)
            for more in points(self.shared.counts, along):
                array, have = self.at(source, {**point, **more})
                into, taken = zip(*map(_shared, cells, have), strict=True) if cells else ((), ())
                made[np.ix_(*into)] = array[np.ix_(*taken)]
                filled[np.ix_(*into)] = True
            if not filled.all():
                _refuse(path, f"finds {int(filled.sum())} of {filled.size} cells that it wants")
            found[key] = made
        self.held[result] = found

    def _block(self, step: Block) -> None:
        runs = self.shared.operations[step.runs]
        pieces = [self.program.pieces[read.piece] for read in step.reads]
        shaped = plain(shape(runs, tuple(self.program.values[piece.value].type.struct for piece in pieces)))
        dims = dict(step.box)
        names = sorted({name for own in dims.values() for name in own.coordinates})
        order = [*step.chain, *(name for name in names if name not in step.chain)]
        results: list[Held] = [{} for _ in step.results]
        totals: dict[tuple[tuple[str, int], ...], list[Any]] = {}
        listed = list(points(self.shared.counts, order))
        made = [self.program.pieces[number] for number in step.results]
        is_state = any(piece.partial for piece in made)
        if is_state:
            self.folds[(made[0].value, step.substep)] = shaped
        for point in reversed(listed) if runs.reverse else listed:
            blocks = self._blocks(step, shaped, point)
            if is_state:
                leaves = states(shaped, blocks)
            elif step.chain:
                key = tuple((name, value) for name, value in point.items() if name not in step.chain)
                leaves, totals[key] = _scanned(shaped, states(shaped, blocks), totals.get(key))
            else:
                leaves = run_blocks(shaped, blocks)
            for held, piece, leaf in zip(results, made, leaves, strict=True):
                held[_key(piece, point)] = np.asarray(leaf)
        for number, held in zip(step.results, results, strict=True):
            self.held[number] = held

    def _blocks(self, step: Block, shaped: Shaped, point: Point) -> list[Any]:
        """What the kernel is given: exactly what its index box projects to."""
        dims, blocks, reads = dict(step.box), list[Any](), iter(step.reads)
        for operand, modes in zip(shaped.signature.operands, axis_modes(shaped), strict=True):
            if operand.coordinate is not None:
                own = dims[operand.coordinate]
                blocks.append(jnp.asarray(_places(own, point), jnp.int32))
                continue
            read = next(reads)
            array, cells = self.at(read.piece, point)
            sizes = self.program.values[self.program.pieces[read.piece].value].type.shape
            for number, (axis, mode, size) in enumerate(zip(operand.axes, modes, sizes, strict=True)):
                array = self._along(step, array, number, cells[number], axis, mode, size, shaped, point)
            blocks.append(jnp.asarray(array))
        return blocks

    def _along(
        self,
        step: Block,
        array: Any,
        number: int,
        cells: list[int],
        axis: Axis,
        mode: str,
        size: int,
        shaped: Shaped,
        point: Point,
    ) -> Any:
        wanted = _projected(axis, dict(step.box), shaped.sizes, size, point)
        mode = "periodic" if not axis.is_window else mode
        place = {cell: at for at, cell in enumerate(cells)}
        index: list[int] = []
        for position in wanted:
            (answer,) = _answer(position, size, mode) or (None,)
            if answer is not None and answer not in place:
                _refuse(step.path, f"reads cell {answer} along axis {number}, which its device does not have")
            index.append(len(cells) if answer is None else place[answer])
        if len(cells) in index:
            widths = [(0, int(at == number)) for at in range(array.ndim)]
            array = np.pad(array, widths)
        return np.take(array, index, axis=number)

    def _merge(self, step: Merge) -> None:
        first = self.program.pieces[step.sources[0]]
        shaped = self.folds[(first.value, first.substep)]
        results = [self.program.pieces[number] for number in step.results]
        found: list[Held] = [{} for _ in results]
        for key, point in self.places(results[0]):
            total: list[Any] | None = None
            for more in points(self.shared.counts, step.over):
                leaves = [self.at(source, {**point, **more})[0] for source in step.sources]
                total = leaves if total is None else combine(shaped, shaped.carrier, total, leaves)
            assert total is not None
            del key
            for held, piece, leaf in zip(found, results, total, strict=True):
                held[_key(piece, point)] = np.asarray(leaf)
        for number, held in zip(step.results, found, strict=True):
            self.held[number] = held

    def _present(self, step: Present) -> None:
        first = self.program.pieces[step.sources[0]]
        shaped = self.folds[(first.value, first.substep)]
        names = sorted(
            {name for number in step.sources for own in self.program.pieces[number].box for name in own.coordinates}
        )
        whole: list[Held] = [{} for _ in step.results]
        for point in points(self.shared.counts, names):
            leaves = present(shaped, [jnp.asarray(self.at(source, point)[0]) for source in step.sources])
            for held, leaf in zip(whole, leaves, strict=True):
                held[tuple(point.items())] = np.asarray(leaf)
        carried = {
            name: own
            for number, axes in zip(step.sources, shaped.carrier, strict=True)
            for name, own in zip(axes, self.program.pieces[number].box, strict=True)
        }
        for number, held, axes in zip(step.results, whole, shaped.result_axes, strict=True):
            piece = self.program.pieces[number]
            shape_ = self.program.values[piece.value].type.shape
            found: Held = {}
            for key, point in self.places(piece):
                array = held[tuple((name, point.get(name, 0)) for name in names)]
                for at, (axis, own, size) in enumerate(zip(axes, piece.box, shape_, strict=True)):
                    source = carried.get(axis.name or f"~{axis.whole_name}", own)
                    have, want = _listed(source, point, size), _listed(own, point, size)
                    array = np.take(array, [have.index(cell) for cell in want], axis=at)
                found[key] = array
            self.held[number] = found

    def _repeat(self, step: Repeat) -> None:
        body, program = step.body, self.program
        takes = [each for each in body.steps if isinstance(each, Take)]
        carries = [self.whole(number) for number in step.operands[: step.carries]]
        rest = [self.whole(number) for number in step.operands[step.carries :]]
        last = step.first + step.turns * step.depth if step.stage is None else step.stage.limit[1]
        stacked: list[list[Any]] = [[] for _ in body.outputs[step.carries :]]
        for iteration in range(step.first, last, step.depth):
            machine = _Machine(self.shared, body)
            given = list(carries)
            for number, array in enumerate(rest):
                given.append(np.take(array, iteration, axis=step.axes[number]) if number < len(step.axes) else array)
            for take, array in zip(takes, given, strict=True):
                machine.give(take.result, array)
            machine.follow()
            outputs = [machine.whole(number) for _, number in body.outputs]
            carries = outputs[: step.carries]
            for listed, output in zip(stacked, outputs[step.carries :], strict=True):
                listed.append(output)
        made = [*carries]
        for number, listed in zip(step.results[step.carries :], stacked, strict=True):
            kind = program.values[program.pieces[number].value].type
            made.append(np.stack(listed) if listed else np.zeros(kind.shape, kind.dtype))
        for number, array in zip(step.results, made, strict=True):
            self.give(number, array)


def _key(piece: Piece, point: Point) -> tuple[tuple[str, int], ...]:
    names = sorted({name for own in piece.box for name in own.coordinates} | set(piece.partial))
    return tuple((name, point.get(name, 0)) for name in names)


def _listed(own: Range, point: Point, size: int) -> list[int]:
    """The cells of the tensor that a range holds on a device, those that a boundary answers too, in order."""
    held = own.held(point)
    if own.wraps and not own.deal:
        # In the order of its indices, of which those at the other end come first.
        return [cell % size for low, high in held for cell in range(low, high)]
    parts: Intervals = held if own.deal else answered(held, size, own.mode)
    return [cell for low, high in parts for cell in range(low, high)]


def _shared(wanted: list[int], have: list[int]) -> tuple[list[int], list[int]]:
    """Where cells that are had lie among the wanted ones, where some stand twice, and where among themselves."""
    place = {cell: at for at, cell in enumerate(have)}
    return [at for at, cell in enumerate(wanted) if cell in place], [place[cell] for cell in wanted if cell in place]


def _places(own: Range, point: Point) -> list[int]:
    """The indices of a dimension on a device, those of neighbours too."""
    if own.deal:
        return [cell for low, high in own.held(point) for cell in range(low, high)]
    low, high = own.indices(point)
    return list(range(low, high))


def _projected(axis: Axis, dims: Mapping[str, Range], sizes: Mapping[str, int], size: int, point: Point) -> list[int]:
    """The cells that an index box reads along one axis, those outside of the tensor too."""
    names = [name for name in axis.names if name in dims]
    if len(names) < len(axis.names) or not names:
        return list(range(size))
    if any(dims[name].deal for name in names):
        return _places(dims[names[0]], point)
    parts = [dims[name].indices(point) for name in names]
    row = Projection.from_axes((axis,), names, dict(sizes))
    box = row.project_box(Box(tuple(low for low, _ in parts), tuple(high for _, high in parts)))
    return list(range(box.start[0], box.stop[0]))


def _answer(position: int, size: int, mode: str) -> tuple[int, ...]:
    parts = answered([(position, position + 1)], size, mode)
    return (parts[0][0],) if parts else ()


def _scanned(shaped: Shaped, steps: list[Any], before: list[Any] | None) -> tuple[list[Any], list[Any]]:
    """The prefixes of a block behind what comes before it, presented; and the total behind it."""
    operation = shaped.operation
    axes = [names.index(operation.over or "") for names in shaped.carrier]
    whole = steps
    if before is not None:
        pairs = [
            [one, other] if not operation.reverse else [other, one] for one, other in zip(before, steps, strict=True)
        ]
        whole = [jnp.concatenate(pair, axis) for pair, axis in zip(pairs, axes, strict=True)]
    inclusive = replace(shaped, operation=replace(operation, exclusive=False))
    prefixes = scan_states(inclusive, whole)
    ends = [
        jax.lax.slice_in_dim(p, *((0, 1) if operation.reverse else (p.shape[a] - 1, p.shape[a])), axis=a)
        for p, a in zip(prefixes, axes, strict=True)
    ]
    if steps[0].shape[axes[0]] == 0:
        return present(shaped, steps), before or []
    wanted = scan_states(shaped, whole)
    if before is not None:
        cut = (
            (lambda p, a: jax.lax.slice_in_dim(p, 0, p.shape[a] - 1, axis=a))
            if operation.reverse
            else (lambda p, a: jax.lax.slice_in_dim(p, 1, p.shape[a], axis=a))
        )
        wanted = [cut(p, a) for p, a in zip(wanted, axes, strict=True)]
    return present(shaped, wanted), ends


def _refuse(path: str, what: str) -> None:
    raise PlanError(message(f"`{path}` {what}", remedy="Ask shards.verify() what is wrong."))
