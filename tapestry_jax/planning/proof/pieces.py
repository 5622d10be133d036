"""Where the piece of a device lies along one axis, for all devices and turns at once.

A cut numbers its blocks by the mesh axes and loops that it is cut over, as the digits of a number: the start of a
piece is an affine function of where a device is and of which turn it is in. Two such functions are equal on 2**20
devices where their coefficients are, which is why a proof made of them costs as much for eight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from combinators.frozen import dataclass
from combinators.index_space.box import Box
from tapestry_jax.planning.geometry.layout import Cut, Layout, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import dim_of, is_time, ring_of

Where = Mapping[str, int]
"""A device and a turn: the position along mesh axes, and the number of the turn of loops."""


@dataclass(frozen=True)
class Piece:
    """The places `[start, start + extent)` of an axis, where `start` is `low` plus every digit times its coefficient.

    Attributes:
      digits: mesh axes and loops with more than one position, by name, and what one step along each adds to the start.
      low: the start at the first position of all digits.
      extent: how many places.
      deal: where cells have been dealt to devices, the places of a device; 0 for an axis in its own order.
      window: what the places are read for, where they overlap.
    """

    digits: tuple[tuple[str, int], ...]
    low: int
    extent: int
    deal: int = 0
    window: Window | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every device has the axis from its first cell on, in its own order, in every turn."""
        return not self.digits and not self.low and not self.deal and self.window is None

    def start(self, where: Where, mesh: MeshShape) -> int:
        """The first place on one device in one turn."""
        return self.low + sum(step * position(axis, where, mesh) for axis, step in self.digits)


def whole(size: int) -> Piece:
    """All of an axis."""
    return Piece((), 0, size)


def piece_of(cut: Cut | None, size: int, mesh: MeshShape) -> Piece:
    """What a layout says that a device holds of an axis of `size` cells."""
    if cut is None:
        return whole(size)
    # Dealt to one device, cells lie in their own order.
    deal = cut.piece if cut.striped and cut.piece < size else 0
    return Piece(digits_of(cut.axes, cut.block, mesh), cut.low, cut.extent, deal, cut.window)


def pieces_of(layout: Layout, shape: Sequence[int], mesh: MeshShape) -> list[Piece]:
    """The same for every axis of a tensor."""
    return [piece_of(cut, size, mesh) for cut, size in zip(layout.cuts, shape, strict=True)]


def digits_of(axes: Iterable[str], block: int, mesh: MeshShape) -> tuple[tuple[str, int], ...]:
    """The digits of a number of blocks, the outermost axis first, times `block`."""
    found: dict[str, int] = {}
    step = block
    for axis in reversed(tuple(axes)):
        count = mesh.size((axis,))
        if count > 1:
            found[axis] = found.get(axis, 0) + step
        step *= count
    return tuple(sorted(found.items()))


def position(axis: str, where: Where, mesh: MeshShape) -> int:
    """The position along a mesh axis or a loop; in a ring, of the device whose piece has arrived."""
    ring = ring_of(axis)
    if ring is None:
        return where.get(axis, 0)
    return (where.get(ring, 0) - where.get(axis, 0)) % mesh.size((axis,))


def first_difference(left: Sequence[Piece], right: Sequence[Piece], mesh: MeshShape) -> Where:
    """A device and turn in which two tensors of pieces differ: a step along one axis, where one is enough to see it."""
    axes = dict.fromkeys(axis for piece in (*left, *right) for axis, _ in piece.digits)
    for where in _places(axes, mesh):
        if box_of(left, where, mesh) != box_of(right, where, mesh):
            return where
    return {}


def _places(axes: Iterable[str], mesh: MeshShape) -> Iterator[Where]:
    yield {}
    known = dict.fromkeys(variable for axis in axes for variable in (ring_of(axis) or axis, axis))
    for axis in known:
        for number in (1, mesh.size((axis,)) - 1):
            yield {axis: number}


def box_of(pieces: Sequence[Piece], where: Where, mesh: MeshShape) -> Box:
    """The places that one device has in one turn."""
    starts = [piece.start(where, mesh) for piece in pieces]
    return Box(tuple(starts), tuple(s + piece.extent for s, piece in zip(starts, pieces, strict=True)))


def spelled(where: Where) -> str:
    """`data=1, turn 2 of batch`; `the first device` where every position is the first."""
    said = [
        f"turn {number} of {dim_of(axis)}" if is_time(axis) else f"{axis}={number}" for axis, number in where.items()
    ]
    return ", ".join(said) or "the first device"
