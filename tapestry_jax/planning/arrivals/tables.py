"""Neighbour exchanges, run on cells that know their names: every device must end up with what its indices read.

The tables of an exchange are followed from the holder of every cell, through what it sends and to whom, to the place
where it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise

from combinators.frozen import dataclass
from combinators.index_space.box import Box
from tapestry_jax.planning.geometry.halo import NeighbourExchange, Piece
from tapestry_jax.planning.geometry.layout import Cut, Window

ZERO = -1
"""A place that holds a zero."""


@dataclass(frozen=True)
class Run:
    """The places `[start, stop)` hold the cells from `cell` on, or zeros."""

    start: int
    stop: int
    cell: int

    def part(self, start: int, stop: int, at: int) -> Run:
        """What lies in `[start, stop)` of it, moved to the place `at`."""
        low, high = max(self.start, start), min(self.stop, stop)
        cell = self.cell if self.cell == ZERO else self.cell + low - self.start
        return Run(at + low - start, at + high - start, cell)


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
        start = device * cut.block + cut.low
        for wanted in _wanted(cut, size, device):
            missing = _missing(wanted, found)
            if missing is not None:
                got = _at(found, missing.start)
                held = "nothing of the axis" if got is None else "zeros" if got == ZERO else f"cell {got}"
                box = Box((missing.start + start,), (missing.stop + start,))
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
    for position in (*range(low, min(0, high)), *range(max(size, low), high)):
        cell = _answer(position, size, window.mode)
        if cell is not None:
            yield Run(position - start, position - start + 1, cell)
    low, high = max(low, 0), min(high, size)
    if low < high:
        yield Run(low - start, high - start, low)


def _answer(position: int, size: int, mode: str) -> int | None:
    """What a boundary answers for a position outside of the axis; None where no index reads it."""
    if mode == "zero":
        return ZERO
    if mode == "valid" or not size:
        return None
    if mode == "periodic":
        return position % size
    if mode == "reflect" and size > 1:
        there = position % (2 * (size - 1))
        return there if there < size else 2 * (size - 1) - there
    if mode not in ("reflect", "edge"):
        raise ValueError(f"no proof knows the boundary {mode!r}")
    return 0 if position < 0 else size - 1


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
    row = piece.table[device].tolist()
    ends = list(accumulate(stop - start for _, start, stop in piece.ranges))
    numbers = [bisect_right(ends, place) for place in row]
    # Columns that follow each other in one range are looked up together.
    joints = zip(pairwise(row), pairwise(numbers), strict=True)
    breaks = [at for at, ((a, b), (c, d)) in enumerate(joints, 1) if b != a + 1 or c != d]
    for low, high in pairwise([0, *breaks, piece.length]):
        if row[low] < 0 or numbers[low] == len(ends):
            continue
        part, _, stop = piece.ranges[numbers[low]]
        first = stop - ends[numbers[low]] + row[low]
        yield from _between(_part(parts, part), first, first + high - low, piece.at + low)


def _part(parts: Sequence[Runs], number: int) -> Runs:
    """What is held or has arrived; nothing where no hop brings it."""
    return parts[number] if 0 <= number < len(parts) else []


def _between(runs: Runs, start: int, stop: int, at: int) -> Iterator[Run]:
    return (run.part(start, stop, at) for run in runs if run.start < stop and start < run.stop)


def _missing(wanted: Run, found: Runs) -> Run | None:
    """The first part of a run that is not found where it is wanted."""
    place = wanted.start
    for run in sorted(found, key=lambda run: run.start):
        if run.stop <= place:
            continue
        is_same = run.cell == ZERO if wanted.cell == ZERO else _names(run, place) == _names(wanted, place)
        if run.start > place or not is_same:
            break
        place = run.stop
        if place >= wanted.stop:
            return None
    return replace(wanted, start=place) if place < wanted.stop else None


def _names(run: Run, place: int) -> int:
    return ZERO if run.cell == ZERO else run.cell + place - run.start


def _at(found: Runs, place: int) -> int | None:
    return next((_names(run, place) for run in found if run.start <= place < run.stop), None)
