"""One axis of a box, for all devices and turns at once: an affine function of where a device is and of the turn.

Mesh axes and loops are coordinates of one kind. A ring's coordinate is the device whose piece has arrived, that of a
pipeline the chunk that a stage works on; only when a block runs depends on the kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from combinators.frozen import dataclass

Point = Mapping[str, int]
"""A value of every coordinate: a device, and a turn of every loop."""
Interval = tuple[int, int]
Intervals = tuple[Interval, ...]
"""Disjoint, not empty, ascending."""


@dataclass(frozen=True)
class Range:
    """What the indices `[start, start + count)` read of one axis; `start` is `low` plus the coordinates by their steps.

    Index `i` reads the cells `[offset + stride * i, offset + stride * i + width)`; by default it is the cell. Indices
    outside of `limit` do not exist.

    Attributes:
      low: the start where every coordinate is 0.
      count: how many indices.
      steps: coordinate and what one step along it adds to the start; coordinates that add nothing are left out.
      limit: the indices that exist.
      before: indices in front of these that are computed, or held, as well: those of a neighbour.
      after: the same behind them.
      wraps: whether indices outside of the axis stand for those at its other end; `limit` holds these too.
      offset: of the first cell that index 0 reads.
      stride: from the cells of one index to those of the next.
      width: the cells that one index reads.
      mode: the boundary that answers cells outside of the tensor.
      deal: where cells have been dealt to devices in turn, how many places a device has; 0 for cells in their order.
    """

    low: int
    count: int
    steps: tuple[tuple[str, int], ...] = ()
    limit: Interval = (0, 0)
    before: int = 0
    after: int = 0
    wraps: bool = False
    offset: int = 0
    stride: int = 1
    width: int = 1
    mode: str = "valid"
    deal: int = 0

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The coordinates that move it."""
        return tuple(name for name, _ in self.steps)

    @property
    def is_plain(self) -> bool:
        """Whether indices are cells, each held once."""
        return (self.offset, self.stride, self.width, self.before, self.after) == (0, 1, 1, 0, 0)

    def start(self, point: Point) -> int:
        """The first index, not counting those of neighbours."""
        return self.low + sum(step * point.get(name, 0) for name, step in self.steps)

    def owned(self, point: Point) -> Interval:
        """The indices, without those of neighbours: empty where the two are equal."""
        low, high = self.limit
        if self.wraps:
            low, high = low + self.before, high - self.after
        start = self.start(point)
        return _clipped(start, start + self.count, low, high)

    def indices(self, point: Point) -> Interval:
        """The indices, with those of neighbours."""
        start = self.start(point)
        return _clipped(start - self.before, start + self.count + self.after, *self.limit)

    def span(self, point: Point) -> Interval:
        """The cells as one interval, those outside of the tensor too; of stripes the places."""
        low, high = self.indices(point)
        if low >= high or not self.width:
            empty = self.offset + self.stride * low
            return empty, empty
        return self.offset + self.stride * low, self.offset + self.stride * (high - 1) + self.width

    def held(self, point: Point) -> Intervals:
        """The cells, those outside of the tensor too."""
        low, high = self.span(point)
        if low >= high:
            return ()
        return _dealt(low, high, self.deal, self.limit[1]) if self.deal else ((low, high),)


def whole(size: int) -> Range:
    """All of an axis, on every device and in every turn."""
    return Range(0, size, (), (0, size))


def points(counts: Mapping[str, int], names: Iterable[str]) -> Iterator[dict[str, int]]:
    """Every value of some coordinates, the last one fastest."""
    listed = tuple(dict.fromkeys(names))
    for values in itertools.product(*(range(counts[name]) for name in listed)):
        yield dict(zip(listed, values, strict=True))


def size_of(counts: Mapping[str, int], names: Iterable[str]) -> int:
    """How many values some coordinates have together."""
    return math.prod(counts[name] for name in dict.fromkeys(names))


def end_in_digits(own: Range, counts: Mapping[str, int]) -> int | None:
    """Where the last block ends, if blocks follow one another from 0 as numbers in digits do; None if not."""
    end = own.count
    for name, step in sorted(own.steps, key=lambda pair: pair[1]):
        if step != end:
            return None
        end *= counts[name]
    return end if own.low == 0 else None


def joined(parts: Iterable[Interval]) -> Intervals:
    """The union of intervals."""
    found: list[Interval] = []
    for low, high in sorted(parts):
        if low >= high:
            continue
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def missing(wanted: Iterable[Interval], held: Intervals) -> Interval | None:
    """The first cells that are wanted and not held; None where there are none."""
    for low, high in wanted:
        for first, last in held:
            if first <= low < last:
                low = last
        if low < high:
            return low, min([high, *(first for first, _ in held if low < first)])
    return None


def answered(parts: Iterable[Interval], size: int, mode: str) -> Intervals:
    """The cells of an axis of `size` cells that a boundary reads for some positions, those outside included.

    Raises:
      ValueError: for a boundary that is not known.
    """
    found: list[Interval] = []
    for low, high in parts:
        found.append((max(low, 0), min(high, size)))
        outside = (*range(low, min(0, high)), *range(max(size, low), high))
        found += [(cell, cell + 1) for cell in (_answer(each, size, mode) for each in outside) if cell is not None]
    return joined(found)


def _answer(position: int, size: int, mode: str) -> int | None:
    """The cell that a boundary reads in place of one outside; None where it reads none."""
    if mode in ("zero", "valid") or not size:
        return None
    if mode == "periodic":
        return position % size
    if mode == "reflect":
        there = position % max(2 * (size - 1), 1)
        return min(there, 2 * (size - 1) - there) if size > 1 else 0
    if mode == "edge":
        return 0 if position < 0 else size - 1
    raise ValueError(f"no sharded graph knows the boundary {mode!r}")


def _clipped(low: int, high: int, least: int, most: int) -> Interval:
    low, high = max(low, least), min(high, most)
    return (low, high) if low < high else (low, low)


@lru_cache(maxsize=4096)
def _dealt(low: int, high: int, deal: int, size: int) -> Intervals:
    """The cells at some places of a dealt axis: in the first rounds one device more takes part."""
    full, rest = divmod(size, deal)
    cells: list[int] = []
    for place in range(low, high):
        device, row = divmod(place, deal)
        if device < full + (row < rest):
            cells.append(row * full + min(row, rest) + device)
    return joined((cell, cell + 1) for cell in cells)


def spelled(point: Point) -> str:
    """`data=1, @batch:4=2`; `everywhere` where no coordinate is named."""
    return ", ".join(f"{name}={value}" for name, value in point.items()) or "everywhere"


def box_text(parts: Sequence[Interval]) -> str:
    """`[0:4, 3:7]`."""
    return "[" + ", ".join(f"{low}:{high}" for low, high in parts) + "]"
