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
from typing import Any

import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.pieces import Flags, Piece, Table, merged_pieces, occurring, part_of, pieces_of
from tapestry_jax.planning.geometry.wanted import Wanted, located, nearest_held, wanted_cells

Pair = tuple[int, int]

_MOST = 2**26
"""The entries of a table that runs: several of half a GiB are alive at once."""

MOST_PLANNED = 2**21
"""The entries of a table of the devices that differ, from which an exchange is predicted and proved: a second each."""


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
    wanted = wanted_cells(target, chosen, size, devices)
    slots, is_local, owners = located(wanted, source, target, size, devices)
    is_remote = (wanted.cells >= 0) & ~is_local
    table = np.where(is_local, slots, -1)
    distances = np.where(is_remote, (owners - np.arange(devices)[:, None]) % devices, 0)
    parts = [0, size if source is None else source.extent]
    pairs: list[set[Pair]] = []
    sent: list[Table] = []
    for distance in nearest_first(set(occurring(distances).tolist()) - {0}, devices):
        chosen = is_remote & (distances == distance)
        columns, arrived = _hop_columns(chosen, slots, distance, devices)
        table = np.where(chosen, parts[-1] + arrived, table)
        pairs.append({((i + distance) % devices, i) for i in np.flatnonzero(chosen.any(axis=1)).tolist()})
        sent.append(columns)
        parts.append(parts[-1] + columns.shape[1])
        _complete(pairs[-1], distance, table, wanted, parts)
    table, masked = _settled(table, wanted, nearest_held(wanted, source, size, devices), pairs, parts)
    hops = tuple(
        Hop(tuple(sorted(chosen)), columns.shape[1], _sent_pieces(columns, parts[1]))
        for chosen, columns in zip(pairs, sent, strict=True)
    )
    first = np.arange(devices) * target.block + target.low
    inside = tuple((int(-start), int(size - start)) for start in first)
    held, done = list[Piece](), 0
    for low, high in others:
        part = slice(done, done + high - low)
        held += pieces_of(table[:, part], parts, masked[part], low)
        done = part.stop
    for low, high in own:
        most = size - (high - low)
        starts = np.full(devices, low + target.low - source.low) if source else np.clip(first + low, 0, most)
        held.append(Piece(low, high - low, 0, tuple(starts.tolist()), None, (), masked=False))
    return NeighbourExchange(hops, merged_pieces(sorted(held, key=lambda piece: piece.at)), inside)


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


def _complete(pairs: set[Pair], distance: int, table: Table, wanted: Wanted, parts: list[int]) -> None:
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
    table: Table, wanted: Wanted, nearest: Table, pairs: list[set[Pair]], parts: list[int]
) -> tuple[Table, Flags]:
    """Give a place to every column of every device; also says which columns must be masked."""
    common, is_common = _common(table)
    part = part_of(common, parts)
    receives = np.ones((len(table), len(parts) - 1), np.bool_)
    for number, chosen in enumerate(pairs):
        receives[:, number + 1] = np.isin(np.arange(len(table)), [target for _, target in chosen])
    arrives = is_common & receives[:, np.where(is_common, part, 0)]
    # Where a hop does not reach, it leaves zeros.
    is_masked: Any = (wanted.is_zero & (arrives | ~is_common)).any(axis=0)
    free = np.where(arrives | (wanted.is_zero & is_common), common, nearest)
    return np.where(table >= 0, table, free), is_masked


def _sent_pieces(sent: Table, extent: int) -> tuple[Piece, ...]:
    filled = np.where(sent < 0, sent.max(axis=0, keepdims=True, initial=0), sent)
    return pieces_of(filled, [0, extent], np.zeros(sent.shape[1], np.bool_))
