"""What an exchange of neighbours sends, for predictions: told by ranges of devices, so that no device is counted.

`halo` makes the tables that devices run, which are as long as there are devices. Who compares ways to exchange, or
predicts one, needs how much is sent over which mesh axes, and finds that on few devices that stand for all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.changes import Overlap
from tapestry_jax.planning.geometry.drifting import Drifting, content, drifting
from tapestry_jax.planning.geometry.fewer import Fewer, fewer
from tapestry_jax.planning.geometry.halo import Hop, Piece, nearest_first, neighbour_exchange
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

Range = tuple[int, int]


@dataclass(frozen=True)
class SentHop:
    """One permutation.

    Attributes:
      length: the cells that a device sends.
      distance: from a receiver on to its sender, round the axis.
      receivers: ranges `[start, stop)` of positions, ascending.
      key: equal for hops that do the same to equal operands.
    """

    length: int
    distance: int
    receivers: tuple[Range, ...]
    key: Hashable

    def axes(self, axes: tuple[str, ...], mesh: MeshShape) -> tuple[str, ...]:
        """The mesh axes along which the partners of some pair differ."""
        return axes_apart(self.receivers, self.distance, axes, mesh)


def sent_hops(change: Overlap, mesh: MeshShape) -> tuple[SentHop, ...]:
    """The hops of an exchange, nearest first; none where every device holds what it wants."""
    if change.source is None or not change.size:
        return ()
    return _sent_hops(change.source, change.cut, change.size, mesh.size(change.cut.axes))


def sent_cells(change: Overlap, mesh: MeshShape) -> int:
    """How many cells of the axis a device sends, all hops together."""
    return sum(hop.length for hop in sent_hops(change, mesh))


@lru_cache(maxsize=1024)
def _sent_hops(source: Cut, cut: Cut, size: int, devices: int) -> tuple[SentHop, ...]:
    drift = drifting(source, cut, size, devices)
    found = None if drift is None else _drifting_hops(drift)
    if found is not None:
        return tuple(found[distance] for distance in nearest_first(set(found), devices))
    small = fewer(source, cut, size, devices)
    exchange = neighbour_exchange(small.source, small.cut, small.size, small.devices)
    found = {hop.distance: hop for hop in (_hop(hop, small) for hop in exchange.hops)}
    assert len(found) == len(exchange.hops)
    return tuple(found[distance] for distance in nearest_first(set(found), devices))


def _drifting_hops(small: Drifting) -> dict[int, SentHop] | None:
    """By distance; None where devices take part that no period tells."""
    hops = neighbour_exchange(small.source, small.cut, small.size, small.devices).hops
    if not all(map(small.tells, hops)):
        return None
    found = dict[int, SentHop]()
    for hop in hops:
        told = content(hop, small.filled)
        for distance, receivers in small.sent(hop):
            assert distance not in found
            found[distance] = SentHop(hop.length, distance, receivers, (distance, receivers, hop.length, told))
    return found


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
    """The mesh axes along which some position of the ranges, and the one `distance` further on, differ.

    The digit of `i + d` at the place `p` is that of `i`, more by `d // p`, and by one where the rest carries.
    """
    ranges, found, place = list(receivers), list[str](), 1
    for axis in reversed(axes):
        count = mesh.size((axis,))
        whole, rest = divmod(distance, place)
        carries = any(_meets(each, place - rest, place, place) for each in ranges)
        stays = any(_meets(each, 0, place - rest, place) for each in ranges)
        if (stays and whole % count) or (carries and (whole + 1) % count):
            found.append(axis)
        place *= count
    return tuple(reversed(found))


def _meets(between: Range, low: int, high: int, period: int) -> bool:
    """Whether some `i` of a range has `low <= i % period < high`."""
    start, stop = between
    rest = start % period
    wait = low - rest if rest < low else 0 if rest < high else period - rest + low
    return low < high and start + wait < stop
