"""Neighbour exchanges: how the pieces of a cut axis become pieces that overlap, and who sends what to whom.

Every device wants some cells of an axis. Some it holds, some a boundary answers, and the others come from the devices
that hold them, one permutation for every distance. What a device wants is put together from its own piece and from what
arrives, column by column: a slice where all devices read alike, a table of positions where they differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

Table: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"
Pair = tuple[int, int]

_MOST = 2**26
"""The entries of a table that runs: several of half a GiB are alive at once."""

MOST_PLANNED = 2**21
"""The entries of a table of the devices that differ, from which an exchange is predicted and proved: a second each."""


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


@dataclass(frozen=True, eq=False)
class Hop:
    """One permutation of `length` cells: pairs `(source, target)` of positions along the mesh axes."""

    pairs: tuple[Pair, ...]
    length: int
    sent: tuple[Piece, ...]

    @property
    def key(self) -> Hashable:
        """Equal for hops that do the same to equal operands."""
        return (
            self.pairs,
            self.length,
            tuple((p.length, p.starts, p.ranges, None if p.table is None else p.table.tobytes()) for p in self.sent),
        )


@dataclass(frozen=True, eq=False)
class NeighbourExchange:
    """A neighbour exchange.

    Attributes:
      hops: nearest first.
      held: how the result is put together.
      inside: the columns `[low, high)` that lie inside the tensor, device by device.
    """

    hops: tuple[Hop, ...]
    held: tuple[Piece, ...]
    inside: tuple[Pair, ...]

    @property
    def cells(self) -> int:
        """How many cells of the axis a device sends, all hops together."""
        return sum(hop.length for hop in self.hops)


def neighbour_exchange(source: Cut | None, target: Cut, size: int, devices: int) -> NeighbourExchange:
    """Plan the exchange from one cut of an axis to another over the same mesh axes.

    Args:
      source: the cut that the axis has; None where every device holds all of it.
      target: the cut that is wanted.
      size: of the axis.
      devices: along the mesh axes of the cuts.

    Returns:
      The hops, and what becomes of them; no hops where every device holds what it wants.

    Raises:
      PlanError: when the tables would not fit into memory.
    """
    check_width(target, table_entries(source, target, size, devices), _MOST)
    # Which mesh axes they are does not matter here.
    return _exchange(source and replace(source, axes=()), replace(target, axes=()), size, devices)


@lru_cache(maxsize=1024)
def _exchange(source: Cut | None, target: Cut, size: int, devices: int) -> NeighbourExchange:
    own = _own_columns(source, target, size, devices)
    others = [(a, b) for a, b in pairwise([0, *itertools.chain(*own), target.extent])][::2]
    chosen = np.concatenate([np.arange(low, high) for low, high in others])
    wanted = _wanted_cells(target, chosen, size, devices)
    slots, is_local, owners = _located(wanted, source, target, size, devices)
    is_remote = (wanted.cells >= 0) & ~is_local
    table = np.where(is_local, slots, -1)
    distances = np.where(is_remote, (owners - np.arange(devices)[:, None]) % devices, 0)
    parts = [0, size if source is None else source.extent]
    pairs: list[set[Pair]] = []
    sent: list[Table] = []
    for distance in nearest_first(set(_occurring(distances).tolist()) - {0}, devices):
        chosen = is_remote & (distances == distance)
        columns, arrived = _hop_columns(chosen, slots, distance, devices)
        table = np.where(chosen, parts[-1] + arrived, table)
        pairs.append({((i + distance) % devices, i) for i in np.flatnonzero(chosen.any(axis=1)).tolist()})
        sent.append(columns)
        parts.append(parts[-1] + columns.shape[1])
        _complete(pairs[-1], distance, table, wanted, parts)
    table, masked = _settled(table, wanted, _nearest_held(wanted, source, size, devices), pairs, parts)
    hops = tuple(
        Hop(tuple(sorted(chosen)), columns.shape[1], _sent_pieces(columns, parts[1]))
        for chosen, columns in zip(pairs, sent, strict=True)
    )
    first = np.arange(devices) * target.block + target.low
    inside = tuple((int(-start), int(size - start)) for start in first)
    held, done = list[Piece](), 0
    for low, high in others:
        part = slice(done, done + high - low)
        held += _pieces(table[:, part], parts, masked[part], low)
        done = part.stop
    for low, high in own:
        most = size - (high - low)
        starts = np.full(devices, low + target.low - source.low) if source else np.clip(first + low, 0, most)
        held.append(Piece(low, high - low, 0, tuple(starts.tolist()), None, (), masked=False))
    return NeighbourExchange(hops, _merged(sorted(held, key=lambda piece: piece.at)), inside)


def table_entries(source: Cut | None, target: Cut, size: int, devices: int) -> int:
    """How many entries a table has for an exchange."""
    own = _own_columns(source, target, size, devices)
    return devices * (target.extent - sum(high - low for low, high in own))


def check_width(target: Cut, entries: int, most: int = MOST_PLANNED) -> None:
    """Refuse an exchange whose tables have more entries than these.

    Raises:
      PlanError: with the window, and what needs no tables.
    """
    if entries <= most:
        return
    mode = "valid" if target.window is None else target.window.mode
    raise PlanError(
        message(
            "a window reaches over too many cells of other devices to be planned",
            f"along {', '.join(map(repr, target.axes))}: {target.extent:,} cells, {target.block:,} of them its own",
            f'with the boundary "{mode}" that takes tables of {entries:,} entries, at most {most:,} are made',
            remedy='Take boundary="zero", which needs no tables, or place the dimension on fewer devices.',
        )
    )


def permuted_axes(pairs: Sequence[Pair] | Table, axes: tuple[str, ...], mesh: MeshShape) -> tuple[str, ...]:
    """The mesh axes along which the partners of some pair differ."""
    if not len(pairs):
        return ()
    places = np.unravel_index(np.asarray(pairs, np.int64).T, [mesh.size((axis,)) for axis in axes])
    return tuple(axis for axis, (there, here) in zip(axes, places, strict=True) if np.any(there != here))


@dataclass(frozen=True, eq=False)
class _Wanted:
    """Device by device and column by column: the position along the axis, the cell (-1 for none), whether it is zero.

    A column without a cell that is not zero is read for padding alone: any value that a cell could have will do.
    """

    positions: Table
    cells: Table
    is_zero: Flags


def _own_columns(source: Cut | None, target: Cut, size: int, devices: int) -> list[tuple[int, int]]:
    """Ranges of columns that every device takes from its own block, of which no tables are made.

    The device with the last cells has less than a block, and takes what a boundary answers behind them from elsewhere;
    what it and those behind it hold further on is no cell, and read by nobody.
    """
    block, full = target.block, size // max(target.block, 1)
    if source is not None and (source.block != block or source.low > 0 or source.low + source.extent < block):
        return []
    if size > block * devices or not target.extent:
        return []
    low, high = min(max(-target.low, 0), target.extent), min(block - target.low, target.extent)
    cells = [(0, block)]
    if full < devices:
        rest, answered = size % block, _answered_behind(target, size)
        cells = [(max(rest + answered - block, 0), rest), (rest + answered, block)]
        if answered >= block or (source is None and not full):
            return []
    found = [(max(a - target.low, low), min(b - target.low, high)) for a, b in cells]
    return [(a, b) for a, b in found if a < b]


def _answered_behind(target: Cut, size: int) -> int:
    """How many positions behind the last cell some index reads."""
    window = target.window
    if window is None or not window.count:
        return 0
    last = window.count - 1 + (window.after if window.wraps else 0)
    return max(window.offset + last * window.step + window.width - size, 0)


def _occurring(values: Table) -> Table:
    """What occurs in a table of numbers that lie close together, ascending."""
    least, most = (int(found) for found in (values.min(initial=0), values.max(initial=0)))
    if most - least > 4 * values.size:
        return np.unique(values)
    occurs = np.zeros(most - least + 1, np.bool_)
    occurs[values.ravel() - least] = True
    return np.flatnonzero(occurs) + least


def _wanted_cells(target: Cut, chosen: Table, size: int, devices: int) -> _Wanted:
    window = target.window or Window(0, 1, 1, size, "valid")
    device = np.arange(devices, dtype=np.int64)[:, None]
    columns = chosen.astype(np.int64)[None, :]
    positions = device * target.block + target.low + columns
    indices = target.block // window.step + window.before + window.after
    start = device * (target.block // window.step) - window.before
    least, end = (-window.before, window.count + window.after) if window.wraps else (0, window.count)
    low = np.maximum(least - start, 0) * window.step
    last = np.minimum(end - start, indices) - 1
    is_read = (columns >= low) & (columns < last * window.step + window.width) & (last * window.step >= low)
    is_inside = (positions >= 0) & (positions < size)
    is_answered = is_inside | (window.mode not in ("zero", "valid"))
    cells = np.where(is_read & is_answered, positions, -1)
    outside = np.flatnonzero((is_read & is_answered & ~is_inside).ravel())
    cells.ravel()[outside] = answering_cell(positions.ravel()[outside], size, window.mode)
    return _Wanted(positions, cells, is_read & ~is_inside & (window.mode == "zero"))


def answering_cell(positions: Table, size: int, mode: str) -> Table:
    """The cell that the boundary reads for each position; positions inside stand for themselves."""
    if size == 0:
        return np.full_like(positions, -1)
    if mode == "periodic":
        return positions % size
    if mode == "reflect" and size > 1:
        folded = positions % (2 * size - 2)
        return np.minimum(folded, 2 * size - 2 - folded)
    if mode not in ("valid", "zero", "reflect", "edge"):
        raise ValueError(f"no exchange knows the boundary {mode!r}")
    return np.clip(positions, 0, size - 1)


def _located(wanted: _Wanted, source: Cut | None, target: Cut, size: int, devices: int) -> tuple[Table, Flags, Table]:
    """Where the cells lie: the place in their holder's piece, whether the device itself holds them, and the holder."""
    device = np.arange(devices, dtype=np.int64)[:, None]
    if source is None:
        return wanted.cells, wanted.cells >= 0, np.broadcast_to(device, wanted.cells.shape)
    start = device * source.block + source.low
    mode = "valid" if target.window is None else target.window.mode
    cells = wanted.cells
    if source.window is not None and source.window.wraps and mode == "periodic":
        # What lies beyond the ends is held as it is wanted.
        places = wanted.positions - start
        beyond = wanted.positions < size + source.window.after
        cells = np.where((places >= 0) & (places < source.extent) & beyond, wanted.positions, cells)
    is_local = (wanted.cells >= 0) & (cells >= start) & (cells < start + source.extent)
    owners = wanted.cells // max(source.block, 1)
    slots = np.where(is_local, cells - start, wanted.cells - owners * source.block - source.low)
    return slots, is_local, owners


def _nearest_held(wanted: _Wanted, source: Cut | None, size: int, devices: int) -> Table:
    """For every column the place of the nearest cell that the device holds."""
    start = np.zeros((devices, 1), np.int64)
    extent = size
    if source is not None:
        start, extent = np.arange(devices, dtype=np.int64)[:, None] * source.block + source.low, source.extent
    last = max(extent - 1, 0)
    least, most = np.clip(-start, 0, last), np.clip(size - 1 - start, 0, last)
    return np.clip(wanted.positions - start, least, np.maximum(least, most))


def nearest_first(distances: set[int], devices: int) -> list[int]:
    """Distances round an axis in the order in which they are exchanged."""
    return sorted(distances, key=lambda distance: (min(distance, devices - distance), -distance))


def _hop_columns(chosen: Flags, slots: Table, distance: int, devices: int) -> tuple[Table, Table]:
    """What every device sends (-1: anything), and for every wanted column the place in what arrives."""
    rows = [_distinct(slots[i][chosen[i]]) for i in range(devices)]
    most = max(len(row) for row in rows)
    used = chosen.any(axis=0)
    by_column = int(used.sum()) <= most
    sent = np.full((devices, most), -1, np.int64)
    arrived = np.zeros_like(slots)
    for device in range(devices):
        sender = (device + distance) % devices
        if by_column:
            # The same column comes in the same place everywhere.
            sent[sender] = np.where(chosen[device][used], slots[device][used], -1)
            arrived[device] = np.cumsum(used) - 1
        else:
            sent[sender, : len(rows[device])] = rows[device]
            arrived[device] = np.searchsorted(rows[device], slots[device]) if len(rows[device]) else 0
    return sent, arrived


def _distinct(places: Table) -> Table:
    """Ascending, each once; nearly always they are in order, from the one end or the other."""
    if len(places) and places[0] > places[-1]:
        places = places[::-1]
    return places if (places[1:] > places[:-1]).all() else np.unique(places)


def _complete(pairs: set[Pair], distance: int, table: Table, wanted: _Wanted, parts: list[int]) -> None:
    """Let a hop also reach the devices that would read zeros for padding: real cells, and no more bytes."""
    devices = len(table)
    common, is_common = _common(table)
    columns = is_common & (common >= parts[-2]) & (common < parts[-1])
    for device in set(range(devices)) - {target for _, target in pairs}:
        is_free = (table[device] < 0) & ~wanted.is_zero[device] & (wanted.cells[device] < 0)
        if (is_free & columns).any() and not (wanted.is_zero[device] & columns).any():
            pairs.add(((device + distance) % devices, device))


def _common(table: Table) -> tuple[Table, Flags]:
    """For every column the place that all devices read which read one, and whether there is such a place."""
    high = table.max(axis=0, initial=-1)
    low = np.where(table < 0, np.iinfo(np.int64).max, table).min(axis=0, initial=np.iinfo(np.int64).max)
    return high, (high >= 0) & (low == high)


def _settled(
    table: Table, wanted: _Wanted, nearest: Table, pairs: list[set[Pair]], parts: list[int]
) -> tuple[Table, Flags]:
    """Give a place to every column of every device; also says which columns must be masked."""
    common, is_common = _common(table)
    part = _part_of(common, parts)
    receives = np.ones((len(table), len(parts) - 1), np.bool_)
    for number, chosen in enumerate(pairs):
        receives[:, number + 1] = np.isin(np.arange(len(table)), [target for _, target in chosen])
    arrives = is_common & receives[:, np.where(is_common, part, 0)]
    # Where a hop does not reach, it leaves zeros.
    is_masked: Any = (wanted.is_zero & (arrives | ~is_common)).any(axis=0)
    free = np.where(arrives | (wanted.is_zero & is_common), common, nearest)
    return np.where(table >= 0, table, free), is_masked


def _part_of(places: Table, parts: list[int]) -> Table:
    return np.searchsorted(np.asarray(parts), places, side="right") - 1


def _sent_pieces(sent: Table, extent: int) -> tuple[Piece, ...]:
    filled = np.where(sent < 0, sent.max(axis=0, keepdims=True, initial=0), sent)
    return _pieces(filled, [0, extent], np.zeros(sent.shape[1], np.bool_))


def _pieces(table: Table, parts: list[int], masked: Flags, at: int = 0) -> tuple[Piece, ...]:
    """Consecutive columns, from `at`, that are consecutive in their source are one slice; the others go by table."""
    if table.shape[1] == 0:
        return ()
    part = _part_of(table, parts)
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


def _merged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
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
    part = int(_part_of(table[:1, low], parts)[0])
    starts = tuple(int(place) - parts[part] for place in table[:, low])
    return Piece(low, high - low, part, starts, None, (), masked)


def _looked_up(table: Table, low: int, high: int, parts: list[int], masked: bool) -> Piece:
    places: Any = _occurring(table[:, low:high])
    part = _part_of(places, parts)
    breaks = np.flatnonzero((np.diff(places) != 1) | (np.diff(part) != 0)) + 1
    ranges = tuple(
        (int(part[a]), int(places[a]) - parts[part[a]], int(places[b - 1]) + 1 - parts[part[a]])
        for a, b in zip([0, *breaks.tolist()], [*breaks.tolist(), len(places)], strict=True)
    )
    return Piece(low, high - low, 0, (), np.searchsorted(places, table[:, low:high]), ranges, masked)
