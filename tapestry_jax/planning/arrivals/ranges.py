"""Exchanges told by ranges of devices, proved so: what is linear on a range holds between its ends.

What devices read, what they are sent and where it is put are linear in the number of the device on each range that the
exchange tells. The ranges are cut where what devices want bends; what holds for the first and the last device of such
a part, and is linear, holds for those between them. So there are as many steps as ranges, for any number of devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from combinators.frozen import dataclass
from combinators.index_space.box import Box
from tapestry_jax.planning.geometry.drift import Drift, Runs
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.pieces import Flags, Table

Fault = tuple[str, str]

_LACKS = "does not receive the cells that its indices read"


def range_fault(drift: Drift, source: Cut, cut: Cut, size: int, devices: int) -> Fault | None:
    """What is wrong with an exchange, and where; None where nothing is."""
    held, wants = source.block, _wanted(cut, size, devices)
    found = _sending_fault(drift, held, wants, devices)
    if found is not None:
        return found
    window = cut.window
    if window is not None and window.mode == "zero" and drift.outside != (cut.low, cut.block, size):
        return "does not put zeros where its boundary says so", f"{cut.block} cells a device, of {size}"
    if drift.outside is not None and (window is None or window.mode != "zero"):
        return "puts zeros where no boundary says so", f"{cut.block} cells a device, of {size}"
    return _reading_fault(drift, held, wants, devices)


@dataclass(frozen=True)
class _Wants:
    """Devices `[begin, stop)` want: `d` the cells `[block * d + low, block * d + high)` of `[least, most)`."""

    block: int
    low: int
    high: int
    least: int
    most: int
    begin: int
    stop: int

    def bends(self) -> Iterator[int]:
        """The devices at which what is wanted is another linear function than before."""
        yield self.begin
        yield self.stop
        # The first that is not cut off in front, and the first that is at the end.
        yield -((self.low - self.least) // self.block)
        yield (self.most - self.high) // self.block + 1

    def of(self, device: Table) -> tuple[Table, Table]:
        return np.maximum(device * self.block + self.low, self.least), np.minimum(
            device * self.block + self.high, self.most
        )


def _wanted(cut: Cut, size: int, devices: int) -> _Wants:
    """The cells inside of the axis that the indices of a device read."""
    window = cut.window or Window(0, 1, 1, size, "valid")
    own = cut.block // window.step
    # Index `i` reads `[i * step + offset, i * step + offset + width)`; device `d` has those from `d * own - before` on.
    low = window.offset - window.before * window.step
    high = window.offset + (own + window.after - 1) * window.step + window.width
    least, most = max(window.offset, 0), min(window.offset + (window.count - 1) * window.step + window.width, size)
    # Nobody has cells where there are none; device `d` has an index where `d * own - before < count`.
    begin = max((least - high) // cut.block + 1, 0)
    stop = min((window.count + window.before - 1) // own + 1, (most - low - 1) // cut.block + 1, devices)
    if not window.count or not window.width or least >= most or begin >= stop:
        begin = stop = 0
    return _Wants(cut.block, low, high, least, most, begin, stop)


def _sending_fault(drift: Drift, held: int, wants: _Wants, devices: int) -> Fault | None:
    """Whether each part is one permutation, of cells that its senders hold."""
    runs, distances, lengths = drift.runs, drift.distances, drift.lengths
    own = np.flatnonzero(distances == 0)
    if len(own) != 1 or lengths[own[0]] != held or (np.diff(distances) <= 0).any():
        return (
            "puts parts side by side that are not in the order of the axis",
            f"from {distances[:8].tolist()} devices on",
        )
    if not len(runs.low) or runs.part.min() < 0 or runs.part.max() >= len(distances):
        return (
            None if not len(runs.low) and wants.begin == wants.stop else (_LACKS, f"{len(runs.low)} ranges of devices")
        )
    order = runs.part * devices + runs.low
    if (order[1:] < (runs.part * devices + runs.stop)[:-1]).any() or (runs.stop <= runs.low).any():
        return "exchanges cells with two neighbours in one permutation", f"{len(distances)} permutations"
    distance, length, last = distances[runs.part], lengths[runs.part], runs.stop - 1
    is_there = (np.minimum(runs.low, runs.low + distance) >= 0) & (np.maximum(last, last + distance) < devices)
    ends = (runs.start, runs.start + runs.step * (last - runs.low))
    is_held = np.logical_and.reduce([(end >= 0) & (end + length <= held) for end in ends])
    wrong = np.flatnonzero(~(is_there & is_held))
    if len(wrong):
        at = wrong[0]
        sent = f"{length[at]} cells from {runs.start[at]} on, of {held}"
        told = f"device {runs.low[at]} of {devices} receives from {distance[at]} devices on {sent}"
        return "sends cells that its devices do not hold", told
    return None


def _reading_fault(drift: Drift, held: int, wants: _Wants, devices: int) -> Fault | None:
    """Whether every device finds what it wants: looked up at both ends of every range on which all is linear."""
    reads = drift.reads
    bends = np.array([0, devices, *wants.bends()], np.int64)
    cuts = np.sort(np.concatenate([np.clip(bends, 0, devices), reads.low, reads.stop]))
    is_range = cuts[:-1] < cuts[1:]
    low, last = cuts[:-1][is_range], cuts[1:][is_range] - 1
    if len(reads.low) and (reads.low[0] < 0 or reads.stop[-1] > devices or (reads.stop[:-1] > reads.low[1:]).any()):
        return "reads on devices that the mesh does not have, or twice", f"{len(reads.low)} ranges of {devices} devices"
    wanting = (low >= wants.begin) & (low < wants.stop)
    low, last = low[wanting], last[wanting]
    read = np.searchsorted(reads.low, low, "right") - 1
    missing = (read < 0) | (last >= np.append(reads.stop, 0)[read])
    if missing.any():
        return _told(int(low[missing][0]), wants, devices, "nothing of the axis")
    parts = [_Columns.of(drift, wants, read, device) for device in (low, last)]
    for columns in parts:
        outside = np.flatnonzero(~columns.covers())
        if len(outside):
            return _LACKS, columns.told(outside[0], devices)
    one, other = parts
    uneven = (one.first_part != other.first_part) | (one.last_part != other.last_part)
    if uneven.any():
        at = np.flatnonzero(uneven)[0]
        return _LACKS, f"devices {low[at]} to {last[at]} of {devices}: the first reads other parts than the last"
    return _cells_fault(drift, held, wants, devices, parts, low, last)


@dataclass(frozen=True, eq=False)
class _Columns:
    """What one device of every range wants, and where it looks for it.

    Attributes:
      device: its number.
      origin: the position of its first column.
      first: the first column that it wants.
      end: the one behind the last.
      read_first: the first that it takes from what is side by side.
      read_end: the one behind the last.
      place: of its first column.
      first_part: the part that holds what it wants first.
      last_part: that holds what it wants last.
      total: places.
    """

    device: Table
    origin: Table
    first: Table
    end: Table
    read_first: Table
    read_end: Table
    place: Table
    first_part: Table
    last_part: Table
    total: int

    @classmethod
    def of(cls, drift: Drift, wants: _Wants, read: Table, device: Table) -> _Columns:
        reads, on = drift.reads, device - drift.reads.low[read]
        origin = device * wants.block + wants.low
        start, stop = wants.of(device)
        place = reads.place[read] + reads.step[read] * on
        ends = np.cumsum(drift.lengths)
        first, last = (np.searchsorted(ends, place + at - origin, "right") for at in (start, stop - 1))
        read_first, read_end = (
            reads.first[read] + reads.first_step[read] * on,
            reads.end[read] + reads.end_step[read] * on,
        )
        wanted = start - origin, stop - origin
        return cls(device, origin, *wanted, read_first, read_end, place, first, last, int(ends[-1]))

    def covers(self) -> Flags:
        """Whether it takes the columns that it wants and no other, from places that there are."""
        is_taken = (self.read_first == self.first) & (self.end == self.read_end)
        return is_taken & (self.place + self.first >= 0) & (self.place + self.end <= self.total)

    def told(self, at: np.intp, devices: int) -> str:
        """What one range takes and wants, in words."""
        taken, wanted = (f"[{a[at]}:{b[at]}]" for a, b in ((self.read_first, self.read_end), (self.first, self.end)))
        where = f"{self.place[at]} on, of {self.total}"
        return f"device {self.device[at]} of {devices} takes columns {taken} from place {where}, and reads {wanted}"


def _cells_fault(
    drift: Drift, held: int, wants: _Wants, devices: int, ends: list[_Columns], low: Table, last: Table
) -> Fault | None:
    """Whether the parts that devices take hold the cells that they want."""
    counts = ends[0].last_part - ends[0].first_part + 1
    of = np.repeat(np.arange(len(low)), counts)
    part = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + ends[0].first_part[of]
    distance, offset = drift.distances[part], (np.cumsum(drift.lengths) - drift.lengths)[part]
    run, is_sent = _runs_of(drift.runs, part, low[of], last[of], devices)
    is_own = distance == 0
    is_sent |= is_own
    for columns in ends:
        device = columns.device[of]
        # A device has its own block whether it is sent to others or not.
        begin = np.where(is_own, 0, drift.runs.begin(run, device))
        # The cell at a place of this part, less the cell that is wanted there.
        cell = held * (device + distance) + begin - offset
        off = cell - columns.origin[of] + columns.place[of]
        wrong = np.flatnonzero((off != 0) | ~is_sent)
        if len(wrong):
            at = wrong[0]
            place = max(int(columns.first[of][at]), int(offset[at] - columns.place[of][at]))
            got = f"cell {int(columns.origin[of][at]) + place + int(off[at])}" if is_sent[at] else "nothing of the axis"
            return _told(int(device[at]), wants, devices, got, place)
    return None


def _runs_of(runs: Runs, part: Table, low: Table, last: Table, devices: int) -> tuple[Table, Flags]:
    """What ranges of receivers are sent of a part, and whether all of them are."""
    run = np.searchsorted(runs.part * devices + runs.low, part * devices + low, "right") - 1
    return run, (run >= 0) & (runs.part[run] == part) & (runs.stop[run] > last)


def _told(device: int, wants: _Wants, devices: int, got: str, column: int | None = None) -> Fault:
    (start,), (stop,) = (each.tolist() for each in wants.of(np.array([device])))
    start = start if column is None else device * wants.block + wants.low + column
    told = f"device {device} of {devices} reads {Box((start,), (stop,))}; the first of these cells is {got}"
    return _LACKS, told
