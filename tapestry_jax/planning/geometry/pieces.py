"""Consecutive columns of what is put together: slices where all devices read alike, tables where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from combinators.frozen import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

Table: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, eq=False)
class Piece:
    """Some consecutive columns of what a device puts together.

    Attributes:
      at: the first of the columns.
      length: how many there are.
      part: the source of a slice: 0 for what the device holds, `h + 1` for what hop `h` brings.
      starts: where the slice starts, device by device.
      table: instead of a slice, positions in the joined `ranges`, device by device.
      ranges: `(part, start, stop)` of what the table points into.
      masked: whether columns that lie outside of the tensor must be made zero.
    """

    at: int
    length: int
    part: int
    starts: tuple[int, ...]
    table: Table | None
    ranges: tuple[tuple[int, int, int], ...]
    masked: bool


def pieces_of(table: Table, parts: list[int], masked: Flags, at: int = 0) -> tuple[Piece, ...]:
    """Consecutive columns, from `at`, that are consecutive in their source are one slice; the others go by table."""
    if table.shape[1] == 0:
        return ()
    part = part_of(table, parts)
    same = (np.diff(table, axis=1) == 1).all(axis=0) & (np.diff(part, axis=1) == 0).all(axis=0)
    starts = [0, *(np.flatnonzero(~same | (masked[1:] != masked[:-1])) + 1).tolist(), table.shape[1]]
    is_one_part, is_one_place = ((of == of[0]).all(axis=0).tolist() for of in (part, table))
    found: list[tuple[int, int, bool]] = []
    for low, high in pairwise(starts):
        is_slice = is_one_part[low] and (high - low > 1 or is_one_place[low])
        if found and not is_slice and not found[-1][2] and masked[low] == masked[low - 1]:
            found[-1] = (found[-1][0], high, False)
        else:
            found.append((low, high, is_slice))
    made = [
        (_slice if is_slice else _looked_up)(table, low, high, parts, bool(masked[low]))
        for low, high, is_slice in found
    ]
    return tuple(replace(piece, at=piece.at + at) for piece in made)


def merged_pieces(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Slices that go on where the one before ends become one with it."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        goes_on = last is not None and piece.starts == tuple(start + last.length for start in last.starts)
        if last is not None and goes_on and piece.starts and piece.part == last.part:
            # One choice in every cell is cheaper than to cut a block and join it again.
            found[-1] = replace(last, length=last.length + piece.length, masked=last.masked or piece.masked)
        else:
            found.append(piece)
    return tuple(found)


def _slice(table: Table, low: int, high: int, parts: list[int], masked: bool) -> Piece:
    part = int(part_of(table[:1, low], parts)[0])
    starts = tuple(int(place) - parts[part] for place in table[:, low])
    return Piece(low, high - low, part, starts, None, (), masked)


def _looked_up(table: Table, low: int, high: int, parts: list[int], masked: bool) -> Piece:
    places: Any = occurring(table[:, low:high])
    part = part_of(places, parts)
    breaks = np.flatnonzero((np.diff(places) != 1) | (np.diff(part) != 0)) + 1
    ranges = tuple(
        (int(part[a]), int(places[a]) - parts[part[a]], int(places[b - 1]) + 1 - parts[part[a]])
        for a, b in zip([0, *breaks.tolist()], [*breaks.tolist(), len(places)], strict=True)
    )
    return Piece(low, high - low, 0, (), np.searchsorted(places, table[:, low:high]), ranges, masked)


def part_of(places: Table, parts: list[int]) -> Table:
    """Which of the parts, that begin at these places, holds each place."""
    return np.searchsorted(np.asarray(parts), places, side="right") - 1


def occurring(values: Table) -> Table:
    """What occurs in a table of numbers that lie close together, ascending."""
    least, most = (int(found) for found in (values.min(initial=0), values.max(initial=0)))
    if most - least > 4 * values.size:
        return np.unique(values)
    occurs = np.zeros(most - least + 1, np.bool_)
    occurs[values.ravel() - least] = True
    return np.flatnonzero(occurs) + least
