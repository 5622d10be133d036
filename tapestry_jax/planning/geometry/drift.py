"""An exchange told by ranges of devices: who sends what to whom, and what is read of it.

It is between blocks of two sizes, or of one size where a window reaches over too many devices for tables.

What arrives from all distances stands side by side, from the beginning of the axis to its end, the device's own block
among it. A device's cells follow each other there: what comes from the end of a block lies at the end of its part, what
comes from the beginning of one at the beginning of the next part, and whole blocks fill theirs. One slice takes them.
"""

from __future__ import annotations

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.halo import Pair
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.pieces import Table


@dataclass(frozen=True, eq=False)
class Runs:
    """What ranges of devices receive from one distance, ascending by part and device.

    Attributes:
      low: the first receiver of each range.
      stop: the one behind its last.
      part: which of the parts of the exchange.
      start: where in its block the sender of the first receiver begins.
      step: by how much further on from one receiver to the next.
    """

    low: Table
    stop: Table
    part: Table
    start: Table
    step: Table

    def begin(self, run: Table, receiver: Table) -> Table:
        """Where in its block the sender of a receiver begins, by the number of the range."""
        return self.start[run] + self.step[run] * (receiver - self.low[run])


@dataclass(frozen=True, eq=False)
class Reads:
    """What ranges of devices take of the parts that stand side by side, ascending by device.

    Attributes:
      low: the first device of each range.
      stop: the one behind its last.
      place: where the first device's columns begin; before all parts where the first columns are no cells.
      step: by how much further on from one device to the next.
      first: its first column that is a cell.
      first_step: from one device to the next.
      end: the column behind its last that is a cell.
      end_step: from one device to the next.
    """

    low: Table
    stop: Table
    place: Table
    step: Table
    first: Table
    first_step: Table
    end: Table
    end_step: Table


@dataclass(frozen=True, eq=False)
class Drift:
    """An exchange that ranges of devices tell.

    Attributes:
      distances: how far behind the receiver the sender of each part is, ascending; 0 is the device's own block.
      lengths: the cells of each part.
      runs: what is sent.
      reads: what is read.
      outside: where what lies outside of the axis is zero: the position of the first column of device 0, by how much it
        is further on from one device to the next, and the size of the axis.
    """

    distances: Table
    lengths: Table
    runs: Runs
    reads: Reads
    outside: tuple[int, int, int] | None

    @property
    def sends(self) -> bool:
        """Whether anything is sent."""
        return len(self.distances) > 1

    @property
    def cells(self) -> int:
        """How many cells of the axis a device sends, all permutations together."""
        return int(self.lengths[self.distances != 0].sum())

    def receivers(self) -> tuple[Table, Table]:
        """The first receiver of every part, and the one behind its last; those between them receive as well."""
        ends = np.searchsorted(self.runs.part, np.arange(len(self.distances) + 1))
        found = ends[1:] > ends[:-1]
        low, stop = np.zeros_like(self.distances), np.zeros_like(self.distances)
        low[found], stop[found] = self.runs.low[ends[:-1][found]], self.runs.stop[ends[1:][found] - 1]
        return low, stop

    def sent(self, part: int, devices: int) -> tuple[tuple[Pair, ...], Table]:
        """Of one part its pairs of sender and receiver, and where every device's slice begins."""
        runs, distance = self.runs, int(self.distances[part])
        chosen = np.flatnonzero(runs.part == part)
        receivers = [np.arange(runs.low[at], runs.stop[at]) for at in chosen]
        starts = [
            runs.start[at] + runs.step[at] * np.arange(len(each)) for at, each in zip(chosen, receivers, strict=True)
        ]
        at, start = np.concatenate(receivers), np.concatenate(starts)
        pairs = tuple((each + distance, each) for each in at.tolist())
        # Who sends nothing does as the nearest that does.
        return pairs, start[np.clip(np.arange(devices) - distance - at[0], 0, len(at) - 1)]

    def read(self, devices: int) -> tuple[Table, Table, Table]:
        """Of every device where its columns begin, the first of them that is a cell, and that behind the last."""
        found = tuple(np.zeros(devices, np.int64) for _ in range(3))
        reads = self.reads
        lines = ((reads.place, reads.step), (reads.first, reads.first_step), (reads.end, reads.end_step))
        for into, (first, step) in zip(found, lines, strict=True):
            for low, stop, a, b in zip(reads.low, reads.stop, first, step, strict=True):
                into[low:stop] = a + b * np.arange(stop - low)
        return found[0], found[1], found[2]


_MOST_ENTRIES = 2**18
"""Of tables of equal blocks, devices that differ by columns: where there would be more, ranges tell the exchange."""


def drifts(source: Cut | None, cut: Cut) -> bool:
    """Whether ranges tell an exchange: of two sizes of blocks, or too wide for tables; no cells answer a boundary."""
    if source is None or source.window is not None or not source.block or not cut.block:
        return False
    if source.block == cut.block and _entries(cut) <= _MOST_ENTRIES:
        return False
    window = cut.window
    return window is None or (window.mode in ("valid", "zero") and not window.wraps and not cut.block % window.step)


def _entries(cut: Cut) -> int:
    """About how many entries a table has of the devices that differ and of the columns that others hold."""
    reach = (abs(cut.low) + cut.extent) // cut.block + 2
    return 4 * reach * max(cut.extent - cut.block, abs(cut.low))
