"""How far a pass is, in cells: what another chunk size has to agree with to go on from there."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.protocols import Array
from tapestry_jax.streaming.parts import Pass, Split


@dataclass(frozen=True)
class _Axis:
    """An axis that a pass goes along.

    Attributes:
      size: its cells.
      shares: in how many parts devices take it at once, each from its beginning.
      share: the places of such a part.
      step: the places of it that a turn takes.
    """

    size: int
    shares: int
    share: int
    step: int

    def edge(self, turns: int) -> tuple[int, int, int, int]:
        """What is done after as many turns from the beginning: cells, not the padding behind them."""
        within = self.size if self.shares == 1 else self.share
        return self.size, self.shares, 0 if self.shares == 1 else self.share, min(turns * self.step, within)


def edges(split: Split, part: Pass, turns: int) -> Array:
    """Of every size that a pass goes along the cells between what is done after some turns and what is left.

    Returns:
      Rows of size, number of shares, places of a share, and the cell, in ascending order; int64.
    """
    count = part.turns - turns if part.region.reverse else turns
    rows = sorted({axis.edge(count) for axis in _axes(split, part)})
    return np.array(rows, np.int64).reshape(len(rows), 4)


def turns_at(split: Split, part: Pass, found: Array) -> int | None:
    """After how many turns a pass is where another one was; None where it never is."""
    reached = {count for axis in _axes(split, part) for count in _counts(axis, found)}
    for count in sorted(reached | {0, part.turns}):
        turns = part.turns - count if part.region.reverse else count
        if 0 <= turns <= part.turns and np.array_equal(edges(split, part, turns), found):
            return turns
    return None


def _counts(axis: _Axis, found: Array) -> Iterator[int]:
    for size, shares, _, edge in found.tolist():
        if (size, shares) == (axis.size, axis.shares) and axis.step:
            yield from (edge // axis.step, -(-edge // axis.step))


def _axes(split: Split, part: Pass) -> Iterator[_Axis]:
    for slot in part.region.body.slots:
        yield from _along(slot, part, split)


def _along(slot: Slot, part: Pass, split: Split) -> Iterator[_Axis]:
    for size, cut in zip(slot.type.shape, slot.layout.cuts, strict=True):
        if cut is not None and part.region.axis in cut.axes and size:
            yield _axis(size, cut, part, split)


def _axis(size: int, cut: Cut, part: Pass, split: Split) -> _Axis:
    """Mesh axes before the loop share the axis out, those behind it share out a turn."""
    at, mesh = cut.axes.index(part.region.axis), split.schedule.mesh
    shares = math.prod(mesh.size((axis,)) for axis in cut.axes[:at])
    step = cut.block * math.prod(mesh.size((axis,)) for axis in cut.axes[at + 1 :])
    return _Axis(size, shares, step * part.turns, step)
