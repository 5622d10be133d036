"""An exchange of neighbours on few devices that stands for the same exchange on many.

In the middle of an axis all devices do the same, one block further on, and behind its last cell all do nothing. A
smaller problem with the same two ends, the same partial block, and as many empty devices as can be told apart, has
every kind of device that the large one has; `Fewer` says for which devices of the large problem one of these stands.
In the same way cells far from the ends of a block, and from the last cell of all, go with their block.
"""

from __future__ import annotations

from dataclasses import replace

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.layout import Cut


@dataclass(frozen=True)
class Fewer:
    """A problem with fewer devices.

    Attributes:
      source: the cut that the axis has, as in `neighbour_exchange`.
      cut: the cut that is wanted.
      size: of the axis.
      devices: how many are left.
      middle: a device with a full block, which stands for `dropped` more behind it.
      dropped: devices left out there, with their blocks.
      last: a device behind the last cell, which stands for `empty` more.
      empty: devices left out there.
      behind: how many devices behind the last cell are left.
      reach: how many blocks on a device reads, round an end of the axis or not.
      marks: cells of a block, ascending, and how many were left out in front of each.
    """

    source: Cut | None
    cut: Cut
    size: int
    devices: int
    middle: int = -1
    dropped: int = 0
    last: int = -1
    empty: int = 0
    behind: int = 0
    reach: int = 0
    marks: tuple[tuple[int, int], ...] = ()

    def cell(self, small: int) -> int:
        """The cell of a block in the large problem."""
        return small + sum(left for at, left in self.marks if small >= at)

    def device(self, small: int) -> int:
        """The position of a device in the large problem."""
        return small + self.dropped * (small > self.middle) + self.empty * (small > self.last)

    def weight(self, small: int) -> int:
        """For how many devices, one behind the other, a device stands."""
        return 1 + self.dropped * (small == self.middle) + self.empty * (small == self.last)

    def distance(self, small: int) -> int:
        """How far on a sender is in the large problem that is `small` devices on, round the axis, in the small one."""
        devices = self.devices + self.dropped + self.empty
        if small <= self.reach:
            return small
        if self.devices - small <= self.reach:
            return small + self.dropped + self.empty
        # Between the two ends of the cells: forwards over the full devices, or over those behind the last cell.
        filled = self.devices - self.behind
        forwards = abs(small - (filled - 1)) <= 2 * self.reach
        return (small + (self.dropped if forwards else self.empty)) % devices


def fewer(source: Cut | None, cut: Cut, size: int, devices: int) -> Fewer:
    """The same problem without blocks, and devices, that repeat their neighbours, and without cells that do.

    Where the blocks of the two cuts have two sizes they drift apart, and all are left: see `drifting`.
    """
    size = _read(source, cut, size)
    block, same = cut.block, Fewer(source, cut, size, devices)
    if not block:
        left = min(devices, 2)
        empty = source is None or not source.block
        return replace(same, devices=left, last=left - 1, empty=devices - left) if empty else same
    if source is not None and (source.block != block or size > block * devices):
        return same
    sides = [cut] if source is None else [source, cut]
    reach = max(max(-each.low, each.low + each.extent) // block + 2 for each in sides)
    kept = 4 * reach + 2
    # Cells, indices of the one window, and indices of the other end in nearly the same block, or each block matters.
    ends = [
        size // block,
        *(each.window.count * each.window.step // block for each in sides if each.window is not None),
    ]
    full, filled = min(*ends, devices), min(max(-(-size // block), max(ends) + 1), devices)
    if filled - full > kept:
        return same
    dropped, empty = _left_out(full, devices - filled, kept)
    short = (_shorter(each, dropped) for each in (source, cut))
    first, second = short
    assert second is not None
    small = Fewer(
        first,
        second,
        size - dropped * block,
        devices - dropped - empty,
        (full - dropped) // 2,
        dropped,
        filled - dropped + (devices - filled - empty) // 2 if empty else -1,
        empty,
        devices - filled - empty,
        reach,
    )
    return _narrow(small, cut.block)


def _narrow(small: Fewer, block: int) -> Fewer:
    """The problem with smaller blocks: cells far from the ends of a block, and from the last cell, all do the same."""
    sides = [small.cut] if small.source is None else [small.source, small.cut]
    step = 1 if small.cut.window is None else small.cut.window.step
    full, rest = divmod(small.size, block)
    over = max(max(abs(each.low), abs(each.low + each.extent - block)) for each in sides)
    width = max((each.window.width for each in sides if each.window is not None), default=1)
    # The last index reads in the same block as the last cell lies in, or close to it.
    late = max((abs(each.window.count * each.window.step - small.size) for each in sides if each.window), default=0)
    near = 2 * (over + width + late + step)
    first, second = (max(cells - 2 * near, 0) // step * step for cells in (rest, block - rest))
    left = first + second
    if not left:
        return small
    less = full * left + first
    cuts = (_narrower(each, left, less) for each in (small.source, small.cut))
    source, cut = cuts
    assert cut is not None
    marks = tuple((at, gone) for at, gone in ((near, first), (rest - first + near, second)) if gone)
    return replace(small, source=source, cut=cut, size=small.size - less, marks=marks)


def _narrower(cut: Cut | None, cells: int, less: int) -> Cut | None:
    """A cut with blocks of so many `cells` fewer, of an axis with so many less."""
    if cut is None:
        return None
    window = cut.window and replace(cut.window, count=cut.window.count - less // cut.window.step)
    return replace(cut, block=cut.block - cells, window=window)


def _read(source: Cut | None, cut: Cut, size: int) -> int:
    """The cells up to the last that is read, where these are fewer by whole blocks: the others are never sent."""
    window = cut.window
    if window is None or window.mode != "valid" or not window.count or (source is not None and source.window):
        return size
    end = window.offset + (window.count - 1) * window.step + window.width
    return end if size - end > cut.block else size


def _left_out(full: int, behind: int, kept: int) -> tuple[int, int]:
    """How many full blocks, and empty devices, can go.

    Round the ends of a periodic axis one way leads over the full devices and one over the empty ones. Where these are
    nearly as many, two ways are as long and become one permutation, so that their difference is kept, or stays large.
    """
    most_full, most_empty = max(full - kept, 0), max(behind - kept, 0)
    difference = full - behind
    if abs(difference) <= 2 * kept:
        both = min(most_full, most_empty)
        return both, both
    if difference > 0:
        return max(min(most_full, difference - 2 * kept + most_empty), 0), most_empty
    return most_full, max(min(most_empty, -difference - 2 * kept + most_full), 0)


def _shorter(cut: Cut | None, blocks: int) -> Cut | None:
    if cut is None or cut.window is None:
        return cut
    window = cut.window
    return replace(cut, window=replace(window, count=window.count - blocks * (cut.block // window.step)))
