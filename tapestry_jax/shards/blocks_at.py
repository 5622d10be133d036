"""Blocks one by one: what a family of them is on one device, in one turn; and how many cells all of them read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from combinators.frozen import dataclass
from tapestry_jax.shards.parts import Block, Program, Repeat, Shared
from tapestry_jax.shards.ranges import Intervals, Range, box_text, points, spelled


@dataclass(frozen=True)
class BlockAt:
    """One block of an operation.

    Attributes:
      path: of the operation.
      point: the device and the turn, as far as they tell blocks of this operation apart.
      box: its index box: of every dimension `(start, stop)`.
      reads: of every operand the tensor's path, and its box as intervals axis by axis.
      writes: of every result the same.
    """

    path: str
    point: Mapping[str, int]
    box: Mapping[str, tuple[int, int]]
    reads: tuple[tuple[str, tuple[Intervals, ...]], ...]
    writes: tuple[tuple[str, tuple[Intervals, ...]], ...]

    def __str__(self) -> str:
        dims = ", ".join(f"{dim} {low}:{high}" for dim, (low, high) in self.box.items())
        reads, writes = (", ".join(f"{path}{_box(box)}" for path, box in side) for side in (self.reads, self.writes))
        return f"{self.path} on {spelled(self.point)}: [{dims}] reads {reads or 'nothing'}, makes {writes}"


def families(program: Program, prefix: int = 1) -> Iterator[tuple[Program, Block, int]]:
    """Every family of blocks, its program, and how many iterations run it; those in loops too."""
    for step in program.steps:
        if isinstance(step, Block):
            yield program, step, prefix
        elif isinstance(step, Repeat):
            count = step.stage.limit[1] if step.stage is not None else step.turns
            yield from families(step.body, prefix * count)


def moving(step: Block) -> tuple[str, ...]:
    """The coordinates that tell blocks of one operation apart."""
    return tuple(dict.fromkeys(name for _, own in step.box for name in own.coordinates))


def count_blocks(shared: Shared, step: Block) -> int:
    """How many blocks there are, padding left out."""
    return math.prod(
        sum(1 for point in points(shared.counts, own.coordinates) if _size(own.owned(point))) for _, own in step.box
    )


def blocks_at(shared: Shared, program: Program, step: Block) -> Iterator[BlockAt]:
    """Every block of a family that has an index, in the order of devices and turns."""
    dims = dict(step.box)
    for point in points(shared.counts, moving(step)):
        box = {dim: own.indices(point) for dim, own in dims.items()}
        if all(low < high for low, high in box.values()):
            reads = tuple(
                (program.values[program.pieces[read.piece].value].path, _held(read.box, point)) for read in step.reads
            )
            made = (program.pieces[number] for number in step.results)
            writes = tuple((program.values[piece.value].path, _held(piece.box, point)) for piece in made)
            yield BlockAt(step.path, point, box, reads, writes)


def cells_read(shared: Shared, program: Program, step: Block) -> int:
    """The cells that all blocks of a family read, those that two blocks read twice; copies on other devices are one.

    Dimensions do not share coordinates, so that the cells of all blocks are products of sums over one dimension each.
    """
    dims, total = dict(step.box), 0
    for read in step.reads:
        shape = program.values[program.pieces[read.piece].value].type.shape
        total += _product(shared.counts, dims, list(zip(read.box, shape, strict=True)))
    return total


def _product(counts: Mapping[str, int], dims: Mapping[str, Range], axes: Sequence[tuple[Range, int]]) -> int:
    """The cells of one operand: dimensions that move the same axes are counted together, others multiply."""
    left, found = list(dims.values()), 1
    waiting = list(axes)
    while left:
        group, names = [left.pop(0)], set[str]()
        names.update(group[0].coordinates)
        own: list[tuple[Range, int]] = []
        grown = True
        while grown:
            grown = False
            for axis in [each for each in waiting if names & set(each[0].coordinates)]:
                waiting.remove(axis)
                own.append(axis)
                names.update(axis[0].coordinates)
                grown = True
            for other in [each for each in left if names & set(each.coordinates)]:
                left.remove(other)
                group.append(other)
                names.update(other.coordinates)
                grown = True
        found *= sum(
            math.prod(_inside(axis, point, size) for axis, size in own)
            for point in points(counts, names)
            if all(_size(each.owned(point)) for each in group)
        )
    return found * math.prod(_inside(axis, {}, size) for axis, size in waiting)


def _inside(own: Range, point: Mapping[str, int], size: int) -> int:
    return sum(max(min(high, size) - max(low, 0), 0) for low, high in own.held(point))


def _size(part: tuple[int, int]) -> int:
    return max(part[1] - part[0], 0)


def _held(box: Sequence[Range], point: Mapping[str, int]) -> tuple[Intervals, ...]:
    return tuple(own.held(point) for own in box)


def _box(box: Sequence[Intervals]) -> str:
    return box_text([(parts[0][0], parts[-1][1]) if parts else (0, 0) for parts in box])
