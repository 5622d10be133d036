"""Exchanges between blocks of two sizes: whole periods are left out, and what is sent in them is told from one.

Blocks of two sizes drift apart, so that the holder of what a device wants lies further and further away. After their
least common multiple of cells both begin anew: the devices do the same there, with holders some devices further off.
A problem without most of these periods has every kind of device, and of the permutations in its middle each stands
for one more in every period left out.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.halo import Hop, Piece
from tapestry_jax.planning.geometry.layout import Cut

Range = tuple[int, int]


@dataclass(frozen=True)
class Drifting:
    """A problem with fewer devices, between blocks of two sizes.

    Attributes:
      source: the cut that the axis has, as in `neighbour_exchange`.
      cut: the cut that is wanted.
      size: of the axis.
      devices: how many are left.
      filled: devices that are left and want some cell.
      dropped: devices left out.
      periods: how many were left out.
      period: devices of a period, by what they want.
      held: devices of a period, by what they hold.
    """

    source: Cut
    cut: Cut
    size: int
    devices: int
    filled: int
    dropped: int
    periods: int
    period: int
    held: int

    @property
    def drift(self) -> int:
        """How many devices further off the holders are, a period later."""
        return abs(self.held - self.period)

    def sent(self, hop: Hop) -> Iterator[tuple[int, tuple[Range, ...]]]:
        """Distance and receivers of all permutations of the large problem for which one stands.

        A permutation whose receivers are in the middle of the axis repeats in every period left out; those with
        holders further off are moved by all periods at once.
        """
        away, receivers = self._away(hop), sorted(receiver for _, receiver in hop.pairs)
        if away > (self._last + self.devices) // 2:
            # The other way round: a few devices on, or from one end of the axis to the other.
            yield self._distance(away + self.dropped), self._receivers(receivers, self.filled // 2)
        elif away > self._last // 2 + self.drift:
            far = away + self.periods * self.drift
            yield self._distance(far), self._receivers(receivers, self.filled // 4)
        elif away <= self._last // 2:
            yield self._distance(away), self._receivers(receivers, 3 * self.filled // 4)
        else:
            here = tuple(_ranges((at, at + 1) for at in receivers))
            for turn in range(self.periods + 1):
                on = turn * self.period
                yield self._distance(away + turn * self.drift), tuple((low + on, high + on) for low, high in here)

    def tells(self, hop: Hop) -> bool:
        """Whether no device that wants nothing takes part in what repeats: how many these are says no period."""
        repeats = self._last // 2 < self._away(hop) <= self._last // 2 + self.drift
        return not repeats or max(receiver for _, receiver in hop.pairs) < self.filled

    @property
    def _last(self) -> int:
        """How far off the holders are at the end of the axis."""
        return self.filled * self.drift // self.period

    def _receivers(self, receivers: list[int], end: int) -> tuple[Range, ...]:
        """Ranges of positions in the large problem: those from `end` on are behind the periods left out."""
        moved, empty = self.periods * self.period, (self.filled + self.devices) // 2
        # One of the devices that want nothing stands for those of them that were left out.
        more = {at: moved if end <= at < empty else self.dropped if at >= empty else 0 for at in receivers}
        return tuple(_ranges((at + (moved if at == empty else more[at]), at + more[at] + 1) for at in receivers))

    def _away(self, hop: Hop) -> int:
        """How far off the holders are, in the direction in which they drift."""
        sender, receiver = hop.pairs[0]
        return (sender - receiver if self.held > self.period else receiver - sender) % self.devices

    def _distance(self, away: int) -> int:
        return (away if self.held > self.period else -away) % (self.devices + self.dropped)


def drifting(source: Cut | None, cut: Cut, size: int, devices: int) -> Drifting | None:
    """The same problem without most of its periods; None where there are too few, or nothing drifts."""
    if source is None or source.window is not None or not source.block or not cut.block or source.block == cut.block:
        return None
    mode, wanted = ("valid", size) if cut.window is None else (cut.window.mode, cut.window.count * cut.window.step)
    cells = math.lcm(source.block, cut.block)
    period, held = cells // cut.block, cells // source.block
    reach = (abs(cut.low) + cut.extent + abs(wanted - size)) // min(source.block, cut.block) + 2
    filled, full = -(-wanted // cut.block), -(-size // source.block)
    behind = devices - max(filled, full)
    if behind < 0 or (behind > reach and mode == "periodic"):
        return None
    # So many devices receive from others at one distance.
    band = (abs(cut.low) + cut.extent + source.block) // abs(source.block - cut.block) + 2
    kept = max(4 * (period + band + 2 * reach) * cut.block, 16 * reach * source.block)
    periods = (min(size, wanted) - kept) // cells
    if periods <= 0:
        return None
    left_out = max(behind - 2 * reach, 0) if mode != "periodic" else 0
    dropped = periods * max(period, held) + left_out
    window = cut.window and replace(cut.window, count=cut.window.count - periods * cells // cut.window.step)
    return Drifting(
        source,
        replace(cut, window=window),
        size - periods * cells,
        devices - dropped,
        filled - periods * period,
        dropped,
        periods,
        period,
        held,
    )


def content(hop: Hop, filled: int) -> bytes:
    """What is sent, receiver by receiver, as they ascend: those that want something, the others get padding."""
    senders = [sender for sender, receiver in sorted(hop.pairs, key=lambda pair: pair[1]) if receiver < filled]
    return array("q", (cell for sender in senders for piece in hop.sent for cell in _row(piece, sender))).tobytes()


def _row(piece: Piece, sender: int) -> list[int]:
    if piece.table is None:
        return list(range(piece.starts[sender], piece.starts[sender] + piece.length))
    places = [cell for _, start, stop in piece.ranges for cell in range(start, stop)]
    return [places[place] for place in piece.table[sender].tolist()]


def _ranges(parts: Iterable[Range]) -> Iterator[Range]:
    """Those that go on where the one before ends are one with it."""
    last: Range | None = None
    for low, high in parts:
        if last is not None and last[1] == low:
            low = last[0]
        elif last is not None:
            yield last
        last = low, high
    if last is not None:
        yield last
