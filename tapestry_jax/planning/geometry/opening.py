"""Layouts inside and outside a loop in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tapestry_jax.planning.geometry.layout import Cut, Layout
from tapestry_jax.planning.geometry.time_axis import in_time, ring_of, turns_of


def streams(layout: Layout, axis: str) -> bool:
    """Whether each turn of the loop `axis` has its own piece of a value in this layout."""
    return any(cut is not None and axis in cut.axes for cut in layout.cuts)


def part_of(layout: Layout, axis: str) -> tuple[Cut | None, ...]:
    """The cuts of a layout that belong to the loop `axis`; what reads and what writes in one loop agree on them.

    In a ring these are all cuts over its mesh axis: in one turn its devices hold different pieces, which cannot be
    brought together along another dimension.
    """
    ring = ring_of(axis) if streams(layout, axis) else None
    own = {axis} if ring is None else {axis, ring}
    return tuple(cut if cut is not None and own & set(cut.axes) else None for cut in layout.cuts)


def outside(layout: Layout, axis: str) -> Layout:
    """The layout, outside the loop, of a value that the loop reads in `layout`.

    What goes round a ring lies on the ring's mesh axis, unless another dimension of it does: then all of it is on every
    device, and each turn slices.
    """
    ring = ring_of(axis)
    if ring is None or any(cut is not None and ring in cut.axes for cut in layout.cuts):
        return stacked(layout, axis)
    return Layout(
        tuple(cut and replace(cut, axes=tuple(ring if n == axis else n for n in cut.axes)) for cut in layout.cuts)
    )


def rotates(layout: Layout, axis: str) -> bool:
    """Whether a value that the loop reads in `layout` goes round a ring."""
    ring = ring_of(axis)
    return ring is not None and streams(outside(layout, axis), ring) and not streams(layout, ring)


def stacked(layout: Layout, axis: str) -> Layout:
    """The layout, outside the loop, of a value whose pieces the loop makes in `layout`."""
    return Layout(tuple(cut if cut is None or axis not in cut.axes else _without(cut, axis) for cut in layout.cuts))


def made_outside(cuts: Mapping[str, Cut], opened: Iterable[str], kept: Iterable[str]) -> dict[str, Cut]:
    """The cuts of an operation outside all loops but those that are open; `kept` dimensions as they are."""
    known, same = set(opened), set(kept)
    found: dict[str, Cut] = {}
    for dim, cut in cuts.items():
        left: Cut | None = cut
        for axis in reversed(in_time(cut.axes)):
            if left is not None and dim not in same and axis not in known:
                left = _without(left, axis)
        if left is not None:
            found[dim] = left
    return found


def _without(cut: Cut, axis: str) -> Cut | None:
    axes = tuple(name for name in cut.axes if name != axis)
    # A window of all chunks is the whole axis and what its boundary answers.
    return replace(cut, axes=axes, block=cut.block * turns_of(axis)) if axes or cut.window is not None else None


def outside_all(layout: Layout, opened: Iterable[str]) -> Layout:
    """The layout outside all loops but those that are open."""
    known = set(opened)
    for cut in layout.cuts:
        for axis in reversed(in_time(cut.axes if cut is not None else ())):
            if axis not in known:
                layout = outside(layout, axis)
    return layout


def turn_cut(cut: Cut, axis: str) -> Cut:
    """What a turn takes of the piece that it finds; of an axis that it finds whole, its own stripes."""
    return replace(cut, axes=(axis,), striped=cut.striped and cut.axes == (axis,))
