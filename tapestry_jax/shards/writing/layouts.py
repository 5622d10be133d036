"""Layouts and cuts as ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapestry_jax.planning.geometry.layout import Cut, Layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.shards.ranges import Range, whole


def range_of(cut: Cut | None, size: int, mesh: MeshShape) -> Range:
    """What a cut of an axis, or of a dimension, gives every device and turn."""
    if cut is None:
        return whole(size)
    window = cut.window
    unit = cut.block if window is None else cut.block // window.step
    steps: list[tuple[str, int]] = []
    step = unit
    for axis in reversed(cut.axes):
        if mesh.size((axis,)) > 1:
            steps.append((axis, step))
        step *= mesh.size((axis,))
    ordered = tuple(reversed(steps))
    if window is None:
        deal = cut.piece if cut.striped and cut.piece < size else 0
        return Range(0, unit, ordered, (0, size), deal=deal)
    count, before, after = window.count, window.before, window.after
    limit = (-before, count + after) if window.wraps else (0, count)
    reading = window.offset, window.step, window.width, window.mode
    return Range(0, unit, ordered, limit, before, after, window.wraps, *reading)


def box_of(layout: Layout, shape: Sequence[int], mesh: MeshShape) -> tuple[Range, ...]:
    """What a layout gives every device and turn of a tensor."""
    return tuple(range_of(cut, size, mesh) for cut, size in zip(layout.cuts, shape, strict=True))


def index_box(cuts: Mapping[str, Cut], sizes: Mapping[str, int], mesh: MeshShape) -> tuple[tuple[str, Range], ...]:
    """The index box of an operation, dimension by dimension."""
    return tuple((dim, range_of(cuts.get(dim), size, mesh)) for dim, size in sizes.items())
