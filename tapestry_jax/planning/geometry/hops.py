"""What an exchange of neighbours sends, for predictions: told by ranges of devices, so that no device is counted.

`halo` makes the tables that devices run, which are as long as there are devices. Who compares ways to exchange, or
predicts one, needs how much is sent over which mesh axes, and finds that on few devices that stand for all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.changes import Overlap
from tapestry_jax.planning.geometry.drift import Drift, drifts
from tapestry_jax.planning.geometry.drifting import drifting
from tapestry_jax.planning.geometry.fewer import Fewer, fewer
from tapestry_jax.planning.geometry.halo import Hop, check_width, nearest_first, neighbour_exchange, table_entries
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.pieces import Flags, Piece, Table

Range = tuple[int, int]


@dataclass(frozen=True)
class SentHop:
    """One permutation.

    Attributes:
      length: the cells that a device sends.
      distance: from a receiver on to its sender, round the axis.
      receivers: ranges `[start, stop)` of positions, ascending.
      key: equal for hops that do the same to equal operands.
      alike: for how many permutations of as many cells over the same mesh axes it stands.
    """

    length: int
    distance: int
    receivers: tuple[Range, ...]
    key: Hashable
    alike: int = 1

    def axes(self, axes: tuple[str, ...], mesh: MeshShape) -> tuple[str, ...]:
        """The mesh axes along which the partners of some pair differ."""
        return axes_apart(self.receivers, self.distance, axes, mesh)


def sends(change: Overlap, mesh: MeshShape) -> bool:
    """Whether anything is sent; not where every device holds what it wants."""
    drift = _drift(change, mesh)
    return bool(sent_hops(change, mesh)) if drift is None else drift.sends


def sent_cells(change: Overlap, mesh: MeshShape) -> int:
    """How many cells of the axis a device sends, all hops together."""
    drift = _drift(change, mesh)
    return sum(hop.length for hop in sent_hops(change, mesh)) if drift is None else drift.cells


def sent_hops(change: Overlap, mesh: MeshShape) -> tuple[SentHop, ...]:
    """The hops of an exchange, nearest first; none where every device holds what it wants."""
    if change.source is None or not change.size:
        return ()
    drift = _drift(change, mesh)
    if drift is not None:
        return tuple(_alike(change, drift, mesh))
    return _sent_hops(change.source, change.cut, change.size, mesh.size(change.cut.axes))


def _drift(change: Overlap, mesh: MeshShape) -> Drift | None:
    if change.source is None or not drifts(change.source, change.cut):
        return None
    return drifting(change.source, change.cut, change.size, mesh.size(change.cut.axes))


def _alike(change: Overlap, drift: Drift, mesh: MeshShape) -> Iterable[SentHop]:
    """Of an exchange told by ranges: one of all permutations of as many cells over the same mesh axes, and how many."""
    devices, axes = mesh.size(change.cut.axes), change.cut.axes
    sent = np.flatnonzero(drift.distances)
    first, stop = (each[sent] for each in drift.receivers())
    distance, length = drift.distances[sent] % devices, drift.lengths[sent]
    apart = sum(is_apart << place for place, is_apart in enumerate(_apart(first, stop, distance, axes, mesh)))
    kinds = np.stack([length, np.broadcast_to(apart, length.shape)])
    _, found, counts = np.unique(kinds, axis=1, return_index=True, return_counts=True)
    for at, alike in sorted(zip(found.tolist(), counts.tolist(), strict=True)):
        receivers = ((int(first[at]), int(stop[at])),)
        key = change.source, change.cut, change.size, devices, at
        yield SentHop(int(length[at]), int(distance[at]), receivers, key, alike)


@lru_cache(maxsize=1024)
def _sent_hops(source: Cut, cut: Cut, size: int, devices: int) -> tuple[SentHop, ...]:
    small = fewer(source, cut, size, devices)
    check_width(cut, table_entries(small.source, small.cut, small.size, small.devices))
    exchange = neighbour_exchange(small.source, small.cut, small.size, small.devices)
    found = {hop.distance: hop for hop in (_hop(hop, small) for hop in exchange.hops)}
    assert len(found) == len(exchange.hops)
    return tuple(found[distance] for distance in nearest_first(set(found), devices))


def _hop(hop: Hop, small: Fewer) -> SentHop:
    sender, receiver = hop.pairs[0]
    distance = small.distance((sender - receiver) % small.devices)
    receivers = tuple(_joined(sorted((receiver, small) for _, receiver in hop.pairs)))
    key = distance, receivers, tuple(_told(piece, small) for piece in hop.sent)
    return SentHop(hop.length, distance, receivers, key)


def _joined(receivers: Iterable[tuple[int, Fewer]]) -> Iterable[Range]:
    """Ranges of positions in the large problem."""
    low = high = -1
    for receiver, small in receivers:
        start = small.device(receiver)
        if start != high and low >= 0:
            yield low, high
        low, high = (low if start == high else start), start + small.weight(receiver)
    yield low, high


def _told(piece: Piece, small: Fewer) -> Hashable:
    """What the devices send, by runs of devices that send alike."""
    assert small.source is not None
    low = small.source.low
    rows: Sequence[Any] = [small.cell(start + low) for start in piece.starts]
    if piece.table is not None:
        rows = [tuple(row) for row in piece.table.tolist()]
    ranges = tuple((part, small.cell(start + low), stop - start) for part, start, stop in piece.ranges)
    runs = groupby(enumerate(rows), key=lambda row: row[1])
    return piece.length, ranges, tuple((row, sum(small.weight(at) for at, _ in same)) for row, same in runs)


def axes_apart(receivers: Iterable[Range], distance: int, axes: tuple[str, ...], mesh: MeshShape) -> tuple[str, ...]:
    """The mesh axes along which some position of the ranges, and the one `distance` further on, differ."""
    ranges = np.array(list(receivers), np.int64).reshape(-1, 2)
    found = _apart(ranges[:, 0], ranges[:, 1], np.full(len(ranges), distance), axes, mesh)
    return tuple(axis for axis, apart in zip(axes, found, strict=True) if apart.any())


def _apart(start: Table, stop: Table, distance: Table, axes: tuple[str, ...], mesh: MeshShape) -> list[Flags]:
    """Of every axis, for every range and its own distance, whether positions differ along it.

    The digit of `i + d` at the place `p` is that of `i`, more by `d // p`, and by one where the rest carries.
    """
    found, place = list[Flags](), 1
    for axis in reversed(axes):
        count = mesh.size((axis,))
        whole, rest = distance // place, distance % place
        carries = _meets(start, stop, place - rest, place, place)
        stays = _meets(start, stop, 0, place - rest, place)
        found.append((stays & (whole % count != 0)) | (carries & ((whole + 1) % count != 0)))
        place *= count
    return found[::-1]


def _meets(start: Table, stop: Table, low: Table | int, high: Table | int, period: int) -> Flags:
    """Whether some `i` of a range has `low <= i % period < high`."""
    rest = start % period
    wait = np.where(rest < low, low - rest, np.where(rest < high, 0, period - rest + low))
    return (low < high) & (start + wait < stop)
