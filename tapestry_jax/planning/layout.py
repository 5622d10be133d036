"""Layouts: which mesh axes cut which axes of a tensor, and into which blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tapestry_jax.planning.mesh_shape import MeshShape


@dataclass(frozen=True)
class Cut:
    """How one axis of a tensor is cut: cell `i` lies on device `i // block` of `axes`, at `i % block`."""

    axes: tuple[str, ...]
    block: int


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
        return tuple(size if cut is None else cut.block for size, cut in zip(shape, self.cuts, strict=True))

    def padded_shape(self, shape: tuple[int, ...], mesh: MeshShape) -> tuple[int, ...]:
        """The shape of the global array that holds all pieces."""
        return tuple(
            size if cut is None else cut.block * mesh.size(cut.axes) for size, cut in zip(shape, self.cuts, strict=True)
        )

    def with_cut(self, axis: int, cut: Cut | None) -> Layout:
        """The layout with another cut on one axis."""
        return Layout(tuple(cut if i == axis else known for i, known in enumerate(self.cuts)))

    def describe(self, names: tuple[str | None, ...]) -> str:
        """`batch:data mlp:model`, or `whole`."""
        parts = [f"{name}:{'+'.join(cut.axes)}" for name, cut in zip(names, self.cuts, strict=True) if cut is not None]
        return " ".join(parts) or "whole"


def even_cut(size: int, axes: tuple[str, ...], mesh: MeshShape) -> Cut | None:
    """The cut of `size` cells into equal blocks, the last ones possibly short or empty."""
    axes = mesh.real(axes)
    if not axes:
        return None
    count = mesh.size(axes)
    return Cut(axes, max(-(-size // count), 1) if size else 0)
