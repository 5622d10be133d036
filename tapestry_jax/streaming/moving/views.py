"""Views of what is stored: the cells that a device holds of a value in a turn, by its layout alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.wanted import answering_cell
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.protocols import Box

Cells = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Range:
    """The places of one axis that a device holds.

    Attributes:
      start: the first place; it may lie before the axis.
      stop: behind the last one; it may lie behind the axis.
      size: of the axis.
      mode: the boundary that answers for places outside.
    """

    start: int
    stop: int
    size: int
    mode: str

    @property
    def extent(self) -> int:
        """How many places."""
        return self.stop - self.start

    @property
    def is_inside(self) -> bool:
        """Whether all of them are cells of the axis."""
        return self.start >= 0 and self.stop <= self.size

    def cells(self) -> Cells:
        """The cell of every place; -1 for zeros."""
        places = np.arange(self.start, self.stop, dtype=np.int64)
        found = answering_cell(places, self.size, self.mode)
        if self.mode == "zero":
            found[(places < 0) | (places >= self.size)] = -1
        return found


View = tuple[Range, ...]


def view(slot: Slot, mesh: MeshShape, at: Mapping[str, int]) -> View:
    """The places that a device holds of a value.

    Args:
      slot: the value, in the layout in which the device holds it.
      mesh: the mesh.
      at: the position of the device along every mesh axis, and the number of the turn of every loop.
    """
    return tuple(
        Range(0, size, size, "edge") if cut is None else _range(cut, size, mesh, at)
        for size, cut in zip(slot.type.shape, slot.layout.cuts, strict=True)
    )


def _range(cut: Cut, size: int, mesh: MeshShape, at: Mapping[str, int]) -> Range:
    first = index_of(cut.axes, mesh, at) * cut.block + cut.low
    window = cut.window
    # Behind the last block lie copies of the last cell, as padding on the device does.
    mode = "edge" if window is None else "periodic" if window.wraps else window.mode
    return Range(first, first + cut.extent, size, mode)


def index_of(axes: Sequence[str], mesh: MeshShape, at: Mapping[str, int]) -> int:
    """The position along several axes, the outermost first."""
    position = 0
    for axis in axes:
        position = position * mesh.size((axis,)) + at[axis]
    return position


def own_box(slot: Slot, mesh: MeshShape, at: Mapping[str, int]) -> tuple[Box, tuple[slice, ...]]:
    """What a device writes of a value that it has made: the box of its own cells, and where in its piece they lie."""
    box: list[tuple[int, int]] = []
    inside: list[slice] = []
    for size, cut in zip(slot.type.shape, slot.layout.cuts, strict=True):
        if cut is None:
            box.append((0, size))
            inside.append(slice(0, size))
            continue
        block = index_of(cut.axes, mesh, at) * cut.block
        start, stop = min(block, size), min(block + cut.block, size)
        box.append((start, stop))
        # Cells that were computed for a neighbour's sake lie in front of the block.
        inside.append(slice(-cut.low, -cut.low + stop - start))
    return tuple(box), tuple(inside)
