"""Layouts: which mesh axes cut which axes of a tensor, and into which blocks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import in_space, in_time, ring_of, turns_of

_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
"""Of dtypes whose cells share a byte on GPUs and TPUs: on a host each takes one, and what CPUs send is widened."""


def dense_bytes(cells: int, dtype: Any) -> int:
    """The bytes of so many cells on a device, one after the other."""
    bits = _BITS.get(dtype.name) if dtype.itemsize == 1 else None
    return cells * dtype.itemsize if bits is None else -(-cells * bits // 8)


@dataclass(frozen=True)
class Window:
    """What a device holds instead of its block alone: the cells that the indices of its block read, and a few more.

    Index `y` reads the cells `[offset + step * y, offset + step * y + width)`. A device holds in one piece what the
    indices of its block read, and `before` and `after` further indices, which are computed redundantly.

    Attributes:
      offset: of the first cell that index 0 reads.
      width: the cells that one index reads.
      step: from one index to the next.
      count: how many indices there are; those beyond them are padding.
      mode: the boundary that answers reads outside of the tensor.
      before: redundant indices in front of the block.
      after: redundant indices behind the block.
      wraps: whether indices outside of `[0, count)` stand for those at the other end.
    """

    offset: int
    width: int
    step: int
    count: int
    mode: str
    before: int = 0
    after: int = 0
    wraps: bool = False


@dataclass(frozen=True)
class Cut:
    """How one axis of a tensor is cut: cell `i` lies on device `i // block` of `axes`, at `i % block`.

    With a `window` device `d` holds the cells `[d * block + low, d * block + low + extent)`, those of its neighbours
    and of the boundary among them.

    A `striped` axis is cut in the same blocks, of another order: its cells have been dealt to the devices in turn, so
    that the cells of a device ascend by the number of devices. Chunks in time are blocks of what a device was dealt.
    """

    axes: tuple[str, ...]
    block: int
    window: Window | None = None
    striped: bool = False

    @property
    def piece(self) -> int:
        """How many places a device has, all chunks in time together."""
        return self.block * math.prod(turns_of(axis) for axis in in_time(self.axes) if ring_of(axis) is None)

    @property
    def in_blocks(self) -> Cut:
        """The same cut of the axis in its own order."""
        return replace(self, striped=False) if self.striped else self

    @property
    def low(self) -> int:
        """Where the piece of a device starts, seen from its block."""
        return 0 if self.window is None else self.window.offset - self.window.before * self.window.step

    @property
    def extent(self) -> int:
        """How many cells a device holds."""
        window = self.window
        if window is None:
            return self.block
        if not self.block or not window.width:
            return 0
        indices = self.block // window.step + window.before + window.after
        return (indices - 1) * window.step + window.width


@dataclass(frozen=True)
class Layout:
    """A cut, or None, for every axis of a tensor. Uneven axes are padded at the end to whole blocks."""

    cuts: tuple[Cut | None, ...]

    @classmethod
    def whole(cls, rank: int) -> Layout:
        """Every device holds all of it."""
        return cls((None,) * rank)

    @property
    def axes(self) -> frozenset[str]:
        """The mesh axes that cut anything; a value in this layout varies over exactly these."""
        return frozenset(axis for cut in self.cuts if cut is not None for axis in cut.axes)

    def local_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the piece on one device, padding included."""
        return tuple(size if cut is None else cut.extent for size, cut in zip(shape, self.cuts, strict=True))

    def padded_shape(self, shape: tuple[int, ...], mesh: MeshShape) -> tuple[int, ...]:
        """The shape of the global array that holds all pieces."""
        return tuple(
            size if cut is None else cut.block * mesh.size(cut.axes) for size, cut in zip(shape, self.cuts, strict=True)
        )

    def with_cut(self, axis: int, cut: Cut | None) -> Layout:
        """The layout with another cut on one axis."""
        return Layout(tuple(cut if i == axis else known for i, known in enumerate(self.cuts)))

    @property
    def in_blocks(self) -> Layout:
        """The same pieces of a tensor whose axes keep their order, as all that is no part of a plan does."""
        return Layout(tuple(cut and cut.in_blocks for cut in self.cuts))

    def stored(self, shape: tuple[int, ...], mesh: MeshShape) -> Layout:
        """The layout in which a tensor that is read like this lies when nobody reads it: every cell once."""
        return Layout(
            tuple(
                cut if cut is None or cut.window is None else stored_cut(cut, size, mesh)
                for size, cut in zip(shape, self.cuts, strict=True)
            )
        )

    def describe(self, names: tuple[str | None, ...]) -> str:
        """`batch:data mlp:model`, or `whole`."""
        parts = [
            f"{name}:{'striped ' * cut.striped}{'+'.join(cut.axes)}"
            for name, cut in zip(names, self.cuts, strict=True)
            if cut is not None
        ]
        return " ".join(parts) or "whole"


def true_layout(layout: Layout, shape: tuple[int, ...], mesh: MeshShape) -> Layout:
    """The layout nearest to `layout` in which a tensor is stored without padding.

    Each axis is cut over the longest prefix of its mesh axes, outermost first, that divides its size. What has no
    cells has no pieces: programs of JAX 0.10.2 give such arrays pieces of another shape than they say.
    """
    if 0 in shape:
        return Layout((None,) * len(shape))
    cuts = (
        None if cut is None else even_cut(size, _dividing(size, in_space(cut.axes), mesh), mesh)
        for size, cut in zip(shape, layout.cuts, strict=True)
    )
    return Layout(tuple(cuts))


def _dividing(size: int, axes: tuple[str, ...], mesh: MeshShape) -> tuple[str, ...]:
    while size % mesh.size(axes):
        axes = axes[:-1]
    return axes


def even_cut(size: int, axes: tuple[str, ...], mesh: MeshShape) -> Cut | None:
    """The cut of `size` cells into equal blocks, the last ones possibly short or empty; None where nothing is divided.

    One cell has one piece: were it cut, all devices but one would hold a copy of it, which is no more than none does.
    """
    axes = mesh.real(axes)
    if not axes or size < 2:
        return None
    return Cut(axes, -(-size // mesh.size(axes)))


def stored_cut(cut: Cut, size: int, mesh: MeshShape) -> Cut | None:
    """The cut of `size` cells that a window reads from: its own blocks where they hold all cells, else even ones."""
    if not cut.axes:
        return None
    even = -(-size // mesh.size(cut.axes))
    return Cut(cut.axes, cut.block if cut.block >= even else even)


def widened_cut(cut: Cut, count: int, before: int, after: int, *, wraps: bool) -> Cut:
    """The cut of `count` indices, of which a device also takes some `before` and `after` its block."""
    if not before and not after:
        return cut
    return Cut(cut.axes, cut.block, Window(0, 1, 1, count, "periodic" if wraps else "valid", before, after, wraps))
