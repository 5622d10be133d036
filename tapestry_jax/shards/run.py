"""Running blocks one by one, in the order in which they are written: no mesh, no partitioner, no layout.

A second way from a plan to its values, to hold the lowered program against. Copies of a block on other devices are
computed once. Nothing is compiled: kernels are traced once for the shapes of their blocks, and run in NumPy. It is
meant for small tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.graphs.evaluate import check_as_traced
from combinators.index_space.axis import Axis
from combinators.merging.blocks import identity_block
from combinators.operations.execute import axis_modes, combine, present, run_blocks, states
from combinators.operations.operation import TRACED
from combinators.operations.shaped import Shaped
from tapestry_jax.shards.numeric.cells import Cells, cells_of, cells_read, cross, in_common, indices_of, places_among
from tapestry_jax.shards.numeric.kernels import Kernels
from tapestry_jax.shards.numeric.scans import scanned
from tapestry_jax.shards.parts import Block, Merge, Move, Next, Piece, Present, Program, Repeat, Shared, Take, View
from tapestry_jax.shards.ranges import Point, Range, points

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
        # Given doubles are floats where JAX has no doubles: what they are was checked, and read as a program reads it.
        value = program.values[program.pieces[take.result].value]
        machine.give(take.result, np.asarray(array, dtype=value.type.dtype))
    with np.errstate(all="ignore"):
        machine.follow()
    return [machine.whole(piece) for _, piece in program.outputs]


@dataclass(frozen=True)
class _Machine:
    shared: Shared
    program: Program
    held: dict[int, Held] = field(default_factory=dict[int, Held])
    folds: dict[tuple[int, int], Kernels] = field(default_factory=dict[tuple[int, int], Kernels])

    def give(self, piece: int, array: Any) -> None:
        """Fill a piece from the whole tensor."""
        known = self.program.pieces[piece]
        self.held[piece] = {key: array[cross(self.cells(known, point))] for key, point in self.places(known)}

    def whole(self, piece: int) -> Any:
        """The whole tensor from the pieces of all devices and turns."""
        known = self.program.pieces[piece]
        kind = self.program.values[known.value].type
        made = np.zeros(kind.shape, kind.dtype)
        for key, point in self.places(known):
            made[cross(self.cells(known, point))] = self.held[piece][key]
        return made

    def places(self, piece: Piece) -> Iterator[tuple[tuple[tuple[str, int], ...], dict[str, int]]]:
        """The devices and turns that hold other cells, or other states, than all before."""
        for point in points(self.shared.counts, _moving(piece)):
            yield tuple(point.items()), point

    def cells(self, piece: Piece, point: Point) -> list[Cells]:
        """The cells of the tensor that a device holds, axis by axis."""
        shape_ = self.program.values[piece.value].type.shape
        return [cells_of(own, point, size) for own, size in zip(piece.box, shape_, strict=True)]

    def at(self, piece: int, point: Point) -> tuple[Any, list[Cells]]:
        """What a device has of a piece, and which cells these are."""
        known = self.program.pieces[piece]
        here = {name: point.get(name, 0) for name in _moving(known)}
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
                into, taken = zip(*map(in_common, cells, have), strict=True) if cells else ((), ())
                if not all(into):
                    continue
                made[cross(into)] = array[cross(taken)]
                filled[cross(into)] = True
            if not filled.all():
                _refuse(path, f"finds {int(filled.sum())} of {filled.size} cells that it wants")
            found[key] = made
        self.held[result] = found

    def _block(self, step: Block) -> None:
        runs = self.shared.operations[step.runs]
        pieces = [self.program.pieces[read.piece] for read in step.reads]
        kernels = Kernels(runs, tuple(self.program.values[piece.value].type.struct for piece in pieces))
        check_as_traced(runs, runs.known.get(TRACED), step.path)
        dims = dict(step.box)
        names = sorted({name for own in dims.values() for name in own.coordinates})
        order = [*step.chain, *(name for name in names if name not in step.chain)]
        results: list[Held] = [{} for _ in step.results]
        totals: dict[tuple[tuple[str, int], ...], list[Any] | None] = {}
        listed = list(points(self.shared.counts, order))
        made = [self.program.pieces[number] for number in step.results]
        is_state = any(piece.partial for piece in made)
        if is_state:
            self.folds[(made[0].value, step.substep)] = kernels
        for point in reversed(listed) if runs.reverse else listed:
            if is_state and _lacks_indices(kernels.shaped, dims, point):
                cells = ([len(each) for each in self.cells(piece, point)] for piece in made)
                like = [
                    np.zeros(n, self.program.values[piece.value].type.dtype)
                    for n, piece in zip(cells, made, strict=True)
                ]
                leaves = kernels.run(_identity, like)
                for held, piece, leaf in zip(results, made, leaves, strict=True):
                    # Other blocks may make a leaf that does not carry the dimension without an index.
                    held.setdefault(_key(piece, point), leaf)
                continue
            blocks = self._blocks(step, kernels.shaped, point)
            if is_state:
                leaves = kernels.run(states, blocks)
            elif step.chain:
                key = tuple((name, value) for name, value in point.items() if name not in step.chain)
                leaves, totals[key] = scanned(kernels, kernels.run(states, blocks), totals.get(key))
            else:
                leaves = kernels.run(run_blocks, blocks)
            for held, piece, leaf in zip(results, made, leaves, strict=True):
                held[_key(piece, point)] = leaf
        for number, held in zip(step.results, results, strict=True):
            self.held[number] = held

    def _blocks(self, step: Block, shaped: Shaped, point: Point) -> list[Any]:
        """What the kernel is given: exactly what its index box projects to."""
        dims, blocks, reads = dict(step.box), list[Any](), iter(step.reads)
        for operand, modes in zip(shaped.signature.operands, axis_modes(shaped), strict=True):
            if operand.coordinate is not None:
                own = dims[operand.coordinate]
                blocks.append(np.asarray(indices_of(own, point), np.int32))
                continue
            read = next(reads)
            array, cells = self.at(read.piece, point)
            sizes = self.program.values[self.program.pieces[read.piece].value].type.shape
            for number, (axis, mode, size) in enumerate(zip(operand.axes, modes, sizes, strict=True)):
                array = self._along(step, array, number, cells[number], axis, mode, size, shaped, point)
            blocks.append(array)
        return blocks

    def _along(
        self,
        step: Block,
        array: Any,
        number: int,
        cells: Cells,
        axis: Axis,
        mode: str,
        size: int,
        shaped: Shaped,
        point: Point,
    ) -> Any:
        wanted = cells_read(axis, dict(step.box), shaped.sizes, size, point)
        index, lacking = places_among(wanted, cells, size, mode if axis.is_window else "periodic")
        if lacking is not None:
            _refuse(step.path, f"reads cell {lacking} along axis {number}, which its device does not have")
        if index is None:
            return array
        if len(cells) in index:
            array = np.pad(array, [(0, int(at == number)) for at in range(array.ndim)])
        return np.take(array, index, axis=number)

    def _merge(self, step: Merge) -> None:
        first = self.program.pieces[step.sources[0]]
        kernels = self.folds[(first.value, first.substep)]
        results = [self.program.pieces[number] for number in step.results]
        found: list[Held] = [{} for _ in results]
        # Leaves have axes of their own, and so coordinates of their own.
        names = sorted({name for piece in results for name in _moving(piece)})
        for point in points(self.shared.counts, names):
            total: list[Any] | None = None
            for more in points(self.shared.counts, step.over):
                leaves = [self.at(source, {**point, **more})[0] for source in step.sources]
                total = leaves if total is None else kernels.run(_combined, total, leaves)
            assert total is not None
            for held, piece, leaf in zip(found, results, total, strict=True):
                held[_key(piece, point)] = leaf
        for number, held in zip(step.results, found, strict=True):
            self.held[number] = held

    def _present(self, step: Present) -> None:
        first = self.program.pieces[step.sources[0]]
        kernels = self.folds[(first.value, first.substep)]
        shaped = kernels.shaped
        names = sorted(
            {name for number in step.sources for own in self.program.pieces[number].box for name in own.coordinates}
        )
        whole: list[Held] = [{} for _ in step.results]
        for point in points(self.shared.counts, names):
            leaves = kernels.run(present, [self.at(source, point)[0] for source in step.sources])
            for held, leaf in zip(whole, leaves, strict=True):
                held[tuple(point.items())] = leaf
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
                    have, want = cells_of(source, point, size), cells_of(own, point, size)
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
            if step.until and carries[0]:
                break
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
    return tuple((name, point.get(name, 0)) for name in _moving(piece))


@lru_cache(maxsize=4096)
def _moving(piece: Piece) -> tuple[str, ...]:
    """The coordinates along which devices and turns hold other cells, or other states."""
    return tuple(sorted({name for own in piece.box for name in own.coordinates} | set(piece.partial)))


def _lacks_indices(shaped: Shaped, dims: Mapping[str, Range], point: Point) -> bool:
    """Whether a box holds no index, of an operation that has some: then there is no block, and nothing to merge."""
    parts = ((shaped.sizes[name], own.indices(point)) for name, own in dims.items())
    return any(size and low >= high for size, (low, high) in parts)


def _identity(shaped: Shaped, like: list[Any]) -> list[Any]:
    assert shaped.operation.monoid is not None
    return identity_block(shaped.operation.monoid, shaped.state_tree, shaped.carrier, like)


def _combined(shaped: Shaped, left: list[Any], right: list[Any]) -> list[Any]:
    return combine(shaped, shaped.carrier, left, right)


def _refuse(path: str, what: str) -> None:
    raise PlanError(message(f"`{path}` {what}", remedy="Ask shards.verify() what is wrong."))
