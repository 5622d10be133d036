"""Exchanges between blocks of two sizes, and those too wide for tables, found by ranges of devices.

Device `d` reads `[A(d), B(d))`, and device `d + k` holds the cells `[h * (d + k), h * (d + k + 1))`. But for the two
ends of the axis `A` and `B` are linear in `d`, and so the devices whose first and last holders are as far away are a
range, and what they exchange is linear in it. There are about as many ranges as distances, however many devices and
cells.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.drift import Drift, Reads, Runs
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.pieces import Flags, Table

_MOST = 2**21
"""Pairs of a range of devices and a distance: of these 0.4 s are planned, and proved."""


@lru_cache(maxsize=32)
def drifting(source: Cut, cut: Cut, size: int, devices: int) -> Drift:
    """The exchange from plain blocks to what windows on blocks, of another size or the same, read.

    Args:
      source: the cut that the axis has.
      cut: the cut that is wanted; see `drifts`.
      size: of the axis.
      devices: along the mesh axes of the cuts.

    Raises:
      PlanError: where devices near the ends of the axis take cells from thousands of others, each from its own.
    """
    reading = _reading(cut, size, devices)
    low, stop = reading.ranges(source.block)
    taking = _taking(reading, source.block, low, stop)
    # Ranges are linear: what is between their first and second device is the step, and what is at their ends is most.
    begins, places, firsts, ends = taking.at(low)
    steps = (more - known for known, more in zip(taking.at(low), taking.at(np.minimum(low + 1, stop - 1)), strict=True))
    begin_step, place_step, first_step, end_step = steps
    order = np.argsort(taking.part, kind="stable")
    runs = Runs(*(each[order] for each in (low[taking.of], stop[taking.of], taking.part, begins, begin_step)))
    reads = Reads(low, stop, places, place_step, firsts, first_step, ends, end_step)
    is_zero = cut.window is not None and cut.window.mode == "zero"
    outside = (cut.low, cut.block, size) if is_zero else None
    return Drift(taking.distances, taking.lengths, runs, reads, outside)


@dataclass(frozen=True)
class _Reading:
    """Devices `[begin, stop)` read: `d` the cells from `block * d + low` on, `extent` of them, of `[least, most)`."""

    block: int
    low: int
    extent: int
    least: int
    most: int
    begin: int
    stop: int

    def start(self, device: Table) -> Table:
        return np.maximum(device * self.block + self.low, self.least)

    def end(self, device: Table) -> Table:
        return np.minimum(device * self.block + self.low + self.extent, self.most)

    def ranges(self, held: int) -> tuple[Table, Table]:
        """Ranges of devices for which both are linear, and the holders of the first and last cell as far away.

        Of what is cut off at an end of the axis the holder is the same, and so as far from no two devices.
        """
        first = _within(-((self.low - self.least) // self.block), self.begin, self.stop)
        last = _within((self.most - self.low - self.extent) // self.block + 1, self.begin, self.stop)
        drift = self.block - held
        found = (
            np.arange(self.begin, min(first + 1, self.stop)),
            np.arange(last, self.stop),
            _turns(drift, self.low, held, first, self.stop),
            _turns(drift, self.low + self.extent - 1, held, self.begin, last),
        )
        low = np.sort(np.concatenate(found).astype(np.int64))
        low = low[np.append(low[:-1] != low[1:], np.ones(min(len(low), 1), np.bool_))]
        return low, np.append(low[1:], self.stop)[: len(low)].astype(np.int64)


def _reading(cut: Cut, size: int, devices: int) -> _Reading:
    window = cut.window or Window(0, 1, 1, size, "valid")
    least = max(window.offset, 0)
    most = min(window.offset + (window.count - 1) * window.step + window.width, size)
    begin = max((least - cut.low - cut.extent) // cut.block + 1, 0)
    with_index = -(-(window.count + window.before) // (cut.block // window.step))
    stop = min(devices, with_index, -((cut.low - most) // cut.block))
    if not window.count or not cut.extent or least >= most or begin >= stop:
        begin = stop = 0
    return _Reading(cut.block, cut.low, cut.extent, least, most, begin, stop)


def _turns(slope: int, base: int, held: int, begin: int, stop: int) -> Table:
    """The devices of `[begin, stop)` at which `(slope * d + base) // held` is another than before; the first is one."""
    if begin >= stop:
        return np.arange(0)
    first, last = (slope * begin + base) // held, (slope * (stop - 1) + base) // held
    if abs(last - first) >= stop - begin:
        return np.arange(begin, stop)
    if slope > 0:
        values = np.arange(first + 1, last + 1)
        found = -((base - held * values) // slope)
    else:
        values = np.arange(first, last, -1)
        found = (base - held * values) // -slope + 1
    return np.append(begin, found)


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


@dataclass(frozen=True, eq=False)
class _Taking:
    """Ranges of devices with every distance from which they take something.

    Attributes:
      reading: what they read.
      held: the cells of a sender's block.
      distances: of the parts, ascending.
      lengths: of the parts.
      of: the range.
      part: its distance, by number.
    """

    reading: _Reading
    held: int
    distances: Table
    lengths: Table
    of: Table
    part: Table

    def at(self, device: Table) -> tuple[Table, Table, Table, Table]:
        """For one device of each range: where its senders begin, and `place`, `first` and `end` of what it reads."""
        is_first, is_last = self._ends()
        begin = device * self.reading.block + self.reading.low
        start, end = self.reading.start(device), self.reading.end(device)
        length, nearest = self.lengths[self.part], device[self.of] + self.distances[self.part]
        inside = start[self.of] - self.held * nearest
        # From the end of a block to the beginning of the next, so that both stand side by side.
        sole = np.minimum(inside, self.held - length)
        begins = np.where(is_first, np.where(is_last, sole, self.held - length), 0)
        places = (np.cumsum(self.lengths) - self.lengths)[self.part] + inside - begins
        return begins, places[is_first] - (start - begin), start - begin, end - begin

    def _ends(self) -> tuple[Flags, Flags]:
        """Whether it is the nearest to the beginning of the axis, and whether the farthest."""
        joints = self.of[1:] != self.of[:-1]
        one = np.ones(min(len(self.of), 1), np.bool_)
        return np.append(one, joints), np.append(joints, one)


def _taking(reading: _Reading, held: int, low: Table, stop: Table) -> _Taking:
    nearest, farthest = reading.start(low) // held - low, (reading.end(low) - 1) // held - low
    counts = farthest - nearest + 1
    _check_count(int(counts.sum()), len(low), reading)
    of = np.repeat(np.arange(len(low)), counts)
    distance = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + nearest[of]
    # The device's own block is one of the parts, whoever reads it.
    least = min(int(distance.min(initial=0)), 0)
    occurs = np.zeros(max(int(distance.max(initial=0)), 0) - least + 1, np.bool_)
    occurs[distance - least] = occurs[-least] = True
    distances, part = np.flatnonzero(occurs) + least, (np.cumsum(occurs) - 1)[distance - least]
    lengths = np.where(distances == 0, held, 0)
    for device in (low, stop - 1):
        block = held * (device[of] + distance)
        length = np.minimum(reading.end(device)[of], block + held) - np.maximum(reading.start(device)[of], block)
        np.maximum.at(lengths, part, length)
    return _Taking(reading, held, distances, lengths, of, part)


def _check_count(pairs: int, ranges: int, reading: _Reading) -> None:
    if pairs <= _MOST:
        return
    raise PlanError(
        message(
            "a window reaches over too many devices to be exchanged",
            f"{reading.extent:,} cells are read in blocks of {reading.block:,}",
            f"{ranges:,} ranges of devices take them from {pairs:,} others; at most {_MOST:,} are planned",
            remedy="Leave the dimension whole, or place it on fewer devices.",
        )
    )
