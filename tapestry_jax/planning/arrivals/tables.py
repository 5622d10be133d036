"""Neighbour exchanges, run on cells that know their names: every device must end up with what its indices read.

The tables of an exchange are followed from the holder of every cell, through what it sends and to whom, to the place
where it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice

import numpy as np

from combinators.frozen import dataclass
from combinators.index_space.box import Box
from tapestry_jax.planning.geometry.halo import NeighbourExchange
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.pieces import Piece, Table

ZERO = -1
"""A place that holds a zero."""

_FAR = 2
"""A step between columns that are looked up apart."""


@dataclass(frozen=True)
class Run:
    """The places `[start, stop)` hold the cells from `cell` on, each `step` behind the one before, or zeros."""

    start: int
    stop: int
    cell: int
    step: int = 1

    def part(self, start: int, stop: int, at: int) -> Run:
        """What lies in `[start, stop)` of it, moved to the place `at`."""
        low, high = max(self.start, start), min(self.stop, stop)
        return Run(at + low - start, at + high - start, self.at(low), self.step)

    def at(self, place: int) -> int:
        """The cell at a place, or that there is a zero."""
        return ZERO if self.cell == ZERO else self.cell + self.step * (place - self.start)


Runs = list[Run]


@lru_cache(maxsize=1024)
def table_fault(
    exchange: NeighbourExchange, source: Cut | None, cut: Cut, size: int, devices: int
) -> tuple[str, str] | None:
    """What is wrong with an exchange, and where; None where nothing is."""
    for hop in exchange.hops:
        for side in zip(*hop.pairs, strict=True):
            if len(set(side)) < len(side):
                return "exchanges cells with two neighbours in one permutation", f"pairs {hop.pairs}"
    senders = [{receiver: sender for sender, receiver in hop.pairs} for hop in exchange.hops]
    for device in range(devices):
        parts = [_held(source, size, device)]
        for hop, known in zip(exchange.hops, senders, strict=True):
            sender = known.get(device)
            if sender is None:
                parts.append([Run(0, hop.length, ZERO)])
            else:
                parts.append(_joined(hop.sent, [_held(source, size, sender)], (), sender))
        found = _joined(exchange.held, parts, exchange.inside, device)
        found.sort(key=lambda run: run.start)
        # How far the runs up to each reach: those that a wanted run may meet begin where that is beyond its start.
        ends = list(accumulate((run.stop for run in found), max))
        start = device * cut.block + cut.low
        for wanted in _wanted(cut, size, device):
            missing = _missing(wanted, found, bisect_right(ends, wanted.start))
            if missing is not None:
                got = _at(found, missing)
                held = "nothing of the axis" if got is None else "zeros" if got == ZERO else f"cell {got}"
                box = Box((missing + start,), (wanted.stop + start,))
                told = f"device {device} of {devices} reads {box} of {size} cells; the first of them is {held}"
                return "does not receive the cells that its indices read", told
    return None


def _held(cut: Cut | None, size: int, device: int) -> Runs:
    """What a device holds before the exchange, by place; places that no index reads are left out."""
    return [Run(0, size, 0)] if cut is None else list(_wanted(cut, size, device))


def _wanted(cut: Cut, size: int, device: int) -> Iterator[Run]:
    """The cells that the indices of a device read, by place in its piece."""
    window = cut.window or Window(0, 1, 1, size, "valid")
    own = cut.block // window.step
    first = device * own - window.before
    least, end = (-window.before, window.count + window.after) if window.wraps else (0, window.count)
    low, high = max(first, least), min(first + own + window.before + window.after, end)
    if low >= high or not window.width:
        return
    start = device * cut.block + cut.low
    low, high = low * window.step + window.offset, (high - 1) * window.step + window.offset + window.width
    for begin, end in ((low, min(0, high)), (max(size, low), high)):
        yield from (run.part(begin, end, begin - start) for run in _answers(begin, end, size, window.mode))
    low, high = max(low, 0), min(high, size)
    if low < high:
        yield Run(low - start, high - start, low)


def _answers(low: int, high: int, size: int, mode: str) -> Iterator[Run]:
    """What a boundary answers for positions outside of the axis, in order; nothing where no index reads them."""
    if low >= high or mode == "valid" or (not size and mode != "zero"):
        return
    if mode == "zero":
        yield Run(low, high, ZERO, 0)
    elif mode == "edge" or (mode == "reflect" and size == 1):
        yield Run(low, high, 0 if low < 0 else size - 1, 0)
    elif mode == "periodic":
        for turn in range(low // size, (high - 1) // size + 1):
            yield Run(turn * size, (turn + 1) * size, 0)
    elif mode == "reflect":
        last = size - 1
        for turn in range(low // last, (high - 1) // last + 1):
            # Forwards and backwards in turns; each leaves its last cell to the next.
            yield Run(turn * last, (turn + 1) * last, last if turn % 2 else 0, -1 if turn % 2 else 1)
    else:
        raise ValueError(f"no proof knows the boundary {mode!r}")


def _joined(pieces: Sequence[Piece], parts: Sequence[Runs], inside: Sequence[tuple[int, int]], device: int) -> Runs:
    """What a device puts together of its parts, by column."""
    found: Runs = []
    for piece in pieces:
        runs = list(_taken(piece, parts, device))
        if piece.masked:
            low, high = inside[device]
            end = piece.at + piece.length
            ends = ((piece.at, min(low, end)), (max(high, piece.at), end))
            runs = [run.part(low, high, low) for run in runs if run.start < high and low < run.stop]
            runs += [Run(a, b, ZERO) for a, b in ends if a < b]
        found += runs
    return found


def _taken(piece: Piece, parts: Sequence[Runs], device: int) -> Iterator[Run]:
    if piece.table is None:
        start = piece.starts[device]
        yield from _between(_part(parts, piece.part), start, start + piece.length, piece.at)
        return
    row = piece.table[device]
    ends = list(accumulate(stop - start for _, start, stop in piece.ranges))
    numbers = np.where(row < 0, len(ends), np.searchsorted(ends, row, "right"))
    # Columns that follow each other in one range, forwards, backwards or standing still, are looked up together.
    steps = np.where(np.diff(numbers) == 0, np.diff(row), _FAR)
    for low, high in _alike(steps, piece.length):
        number = int(numbers[low])
        if number == len(ends):
            continue
        part, _, stop = piece.ranges[number]
        first, step = stop - ends[number] + int(row[low]), int(steps[low]) if high > low + 1 else 1
        yield from _stepped(_part(parts, part), first, step, piece.at + low, high - low)


def _alike(steps: Table, columns: int) -> Iterator[tuple[int, int]]:
    """Ranges of columns, each as far from the one before it: forwards, backwards or not at all."""
    changes = [*(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    low = 0
    while low < columns:
        is_alone = low == len(steps) or abs(int(steps[low])) > 1
        high = low + 1 if is_alone else changes[bisect_right(changes, low)] + 1
        yield low, high
        low = high


def _part(parts: Sequence[Runs], number: int) -> Runs:
    """What is held or has arrived; nothing where no hop brings it."""
    return parts[number] if 0 <= number < len(parts) else []


def _between(runs: Runs, start: int, stop: int, at: int) -> Iterator[Run]:
    return (run.part(start, stop, at) for run in runs if run.start < stop and start < run.stop)


def _stepped(runs: Runs, first: int, step: int, at: int, length: int) -> Iterator[Run]:
    """What lies at `first` and every `step` from there, `length` times, moved to the place `at`."""
    if step == 0:
        yield from (Run(at, at + length, run.cell, 0) for run in _between(runs, first, first + 1, at))
    elif step > 0:
        yield from _between(runs, first, first + length, at)
    else:
        for run in _between(runs, first - length + 1, first + 1, 0):
            yield Run(at + length - run.stop, at + length - run.start, run.at(run.stop - 1), -run.step)


def _missing(wanted: Run, found: Runs, first: int) -> int | None:
    """The first place of a run where it is not found, or something else is."""
    place = wanted.start
    for run in islice(found, first, None):
        if run.start > place or run.start >= wanted.stop:
            break
        low, high = max(run.start, wanted.start), min(run.stop, wanted.stop)
        if low < high and not _agree(run.part(low, high, low), wanted.part(low, high, low)):
            return low
        place = max(place, high)
    return place if place < wanted.stop else None


def _agree(one: Run, other: Run) -> bool:
    """Whether two runs of the same places hold the same."""
    if ZERO in (one.cell, other.cell):
        return one.cell == other.cell
    return one.cell == other.cell and (one.step == other.step or one.stop - one.start == 1)


def _at(found: Runs, place: int) -> int | None:
    return next((run.at(place) for run in found if run.start <= place < run.stop), None)
