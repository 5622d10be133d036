"""The way from one layout to another: which changes, and in which order."""

from __future__ import annotations

import math
from itertools import pairwise

from tapestry_jax.planning.geometry.changes import (
    Cast,
    Change,
    Deal,
    Exchange,
    Gather,
    Overlap,
    Reorder,
    Slice,
    changed_shape,
)
from tapestry_jax.planning.geometry.drift import drifts
from tapestry_jax.planning.geometry.hops import sends, sent_cells
from tapestry_jax.planning.geometry.layout import Cut, Layout, stored_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import is_time, spread


def layout_changes(
    shape: tuple[int, ...],
    source: Layout,
    target: Layout,
    varying: frozenset[str],
    mesh: MeshShape,
    held: frozenset[str] = frozenset(),
) -> tuple[Change, ...]:
    """The steps from `source` to `target`, for a consumer that varies over `varying`.

    Over the mesh axes `held` the value varies already, although they do not cut it.

    Slices that need no gathered axis come first, since they make what is gathered smaller; then all-to-alls and
    gathers, then the other slices, then neighbour exchanges axis after axis (each takes along what the one before has
    brought, which fills the corners). The cast, whose gradients are added up, stands where the value is smallest: what
    is gathered is cast before, so that gradients are scattered first, and a part of them is summed.
    """
    way = _Way(shape, source, target, mesh, held)
    if source != target:
        way.leave_stripes_and_windows()
        way.slice_over_free_axes()
        way.exchange()
        way.coarsen(varying)
        way.slice_the_rest()
        way.reach(target)
    missing = tuple(name for name in mesh.names if name in varying and name not in way.varies)
    return _cast_where_least(way.changes, missing, source.local_shape(shape), mesh)


def _cast_where_least(
    changes: list[Change], axes: tuple[str, ...], shape: tuple[int, ...], mesh: MeshShape
) -> tuple[Change, ...]:
    """The changes and a cast over mesh axes that none of them knows, the last of the places that hold fewest cells."""
    if not axes:
        return tuple(changes)
    shapes = [shape]
    for change in changes:
        shapes.append(changed_shape(shapes[-1], change, mesh))
    at = min(range(len(shapes)), key=lambda place: (math.prod(shapes[place]), -place))
    return (*changes[:at], Cast(axes), *changes[at:])


class _Way:
    """Where a value lies now, and the changes that have brought it there.

    Attributes:
      now: its layout.
      target: the layout to bring it to, in plain blocks as far as those of `now` lead there.
      varies: the mesh axes over which it varies now.
      taken: the mesh axes that cut it at first.
      changes: so far.
    """

    def __init__(
        self, shape: tuple[int, ...], source: Layout, target: Layout, mesh: MeshShape, held: frozenset[str]
    ) -> None:
        self.shape, self.mesh = shape, mesh
        self.now, self.target = source, target
        self.taken = source.axes
        self.varies = {*self.taken, *held}
        self.changes: list[Change] = []

    def leave_stripes_and_windows(self) -> None:
        """Of what the changes after it need not know: they lead from blocks to blocks."""
        for axis in range(len(self.shape)):
            self._leave_stripes(axis)
            self._leave_windows(axis)

    def _leave_stripes(self, axis: int) -> None:
        have, wanted = self.now.cuts[axis], self.target.cuts[axis]
        if have is None or wanted is None or have == wanted:
            return
        # Stripes and blocks of the same devices differ by one exchange, before or behind all others.
        if have.striped and have.axes == wanted.axes and _is_dealt(have, self.shape[axis], self.mesh):
            self._change(Deal(axis, have.in_blocks), axis, have.in_blocks)
        elif wanted.striped and _is_dealt(wanted, self.shape[axis], self.mesh):
            self.target = self.target.with_cut(axis, wanted.in_blocks)

    def _leave_windows(self, axis: int) -> None:
        have, wanted = self.now.cuts[axis], self.target.cuts[axis]
        overlaps = (have is not None and have.window is not None) or (wanted is not None and wanted.window is not None)
        striped = (have is not None and have.striped) or (wanted is not None and wanted.striped)
        if have is not None and wanted is not None and have.axes == wanted.axes and not striped:
            # Neighbours exchange what differs, behind all others.
            if overlaps or (have != wanted and self._neighbours_suffice(axis, have, wanted)):
                self.target = self.target.with_cut(axis, have)
        elif overlaps:
            self._leave_other_windows(axis, have, wanted)

    def _neighbours_suffice(self, axis: int, have: Cut, wanted: Cut) -> bool:
        in_space = not any(map(is_time, have.axes))
        return in_space and _is_cheaper(self._overlaps(Overlap(axis, have, wanted, self.shape[axis])), self.mesh)

    def _leave_other_windows(self, axis: int, have: Cut | None, wanted: Cut | None) -> None:
        size = self.shape[axis]
        if have is not None and have.window is not None:
            plain = stored_cut(have, size, self.mesh)
            assert plain is not None
            self._change(Overlap(axis, have, plain, size), axis, plain)
        if wanted is not None and wanted.window is not None:
            is_free = have is None and not set(wanted.axes) & self.taken
            self.target = self.target.with_cut(axis, None if is_free else stored_cut(wanted, size, self.mesh))

    def slice_over_free_axes(self) -> None:
        """Along whole axes, over mesh axes that cut nothing."""
        for axis, wanted in enumerate(self.target.cuts):
            if wanted is not None and self.now.cuts[axis] is None and not set(wanted.axes) & self.taken:
                self._slice(axis, wanted, wanted)

    def slice_the_rest(self) -> None:
        """Along every axis that is whole and to be cut."""
        for axis, wanted in enumerate(self.target.cuts):
            if wanted is not None and self.now.cuts[axis] is None:
                self._slice(axis, wanted, wanted)

    def _slice(self, axis: int, cut: Cut, becomes: Cut | None) -> None:
        missing, have = _missing(cut, self.varies), self.now.cuts[axis]
        alike = _gathers_back(cut, len(missing), self.shape[axis] if have is None else have.extent, self.mesh)
        if alike:
            self.varies.update(missing)
        else:
            self.cast(missing)
        self._change(Slice(axis, cut, self.shape[axis], alike), axis, becomes)

    def exchange(self) -> None:
        """Cuts that are wanted on other axes, which are whole."""
        # One exchange may free the axis that another needs: from `y:a z:b` to `x:a y:b` the first moves `a`.
        while (move := _next_exchange(self.now, self.target)) is not None:
            self._exchange(*move)

    def _exchange(self, axis: int, to: int) -> None:
        given, wanted = self.now.cuts[axis], self.target.cuts[to]
        assert given is not None and wanted is not None
        self._change(Exchange(axis, to, self.shape[axis], self.shape[to], wanted), to, wanted)
        self._whole(axis, given, None)

    def coarsen(self, varying: frozenset[str]) -> None:
        """What is cut otherwise than it should be: gathered, unless a slice or an exchange leads there."""
        for axis in range(len(self.shape)):
            have, wanted = self.now.cuts[axis], self.target.cuts[axis]
            if have is None or have == wanted:
                continue
            finer = _refinement(have, wanted, self.mesh)
            if finer is not None and not set(finer.axes) & self.taken:
                self._slice(axis, finer, wanted)
            elif (to := _exchange_target(self.now, self.target, axis)) is not None:
                self._exchange(axis, to)
            else:
                self._gather(axis, have, wanted, varying)

    def _gather(self, axis: int, have: Cut, wanted: Cut | None, varying: frozenset[str]) -> None:
        kept = _kept_prefix(have, wanted, self.mesh)
        # Blocks that stay are whole blocks, those of an axis smaller than one too.
        size = self.shape[axis] if wanted is None or not kept else max(self.shape[axis], wanted.block)
        # The innermost mesh axes hold neighbouring blocks, so they are gathered first.
        for axes, is_varying in _grouped(have.axes[kept:], varying):
            self.changes.append(Gather(axis, axes, size, is_varying))
            if not is_varying:
                self.varies.difference_update(axes)
        self._whole(axis, have, wanted if kept else None)

    def _whole(self, axis: int, had: Cut, becomes: Cut | None) -> None:
        if had.striped:
            self.changes.append(Reorder(axis, had, self.shape[axis]))
        self.now = self.now.with_cut(axis, becomes)

    def reach(self, final: Layout) -> None:
        """The stripes and windows of the layout that was asked for."""
        last = [
            (axis, have, wanted)
            for axis, (have, wanted) in enumerate(zip(self.now.cuts, final.cuts, strict=True))
            if wanted is not None and have != wanted
        ]
        self.changes += [Deal(axis, wanted) for axis, _, wanted in last if wanted.striped]
        left = [Overlap(axis, have, wanted, self.shape[axis]) for axis, have, wanted in last if not wanted.striped]
        # What costs nothing makes the exchanges smaller.
        for overlaps in sorted(
            map(self._overlaps, left), key=lambda some: any(sends(each, self.mesh) for each in some)
        ):
            self._overlap(overlaps)

    def _overlap(self, overlaps: list[Overlap]) -> None:
        last = overlaps[-1]
        self.cast(_missing(last.cut, self.varies))
        if overlaps[0].source is not None and not _is_cheaper(overlaps, self.mesh):
            self.changes.append(Gather(last.axis, last.cut.axes, last.size, varying=True))
            overlaps = [Overlap(last.axis, None, last.cut, last.size)]
        self.changes += overlaps

    def _overlaps(self, overlap: Overlap) -> list[Overlap]:
        """Between blocks of two sizes cells come first, and then what a boundary answers with cells of others."""
        have, wanted, size = overlap.source, overlap.cut, overlap.size
        full = size if have is None else min(have.block, wanted.block) * self.mesh.size(wanted.axes)
        if have is None or have.block == wanted.block or drifts(have, wanted) or full < size:
            return [overlap]
        way = [have, Cut(have.axes, have.block), Cut(wanted.axes, wanted.block), wanted]
        return [Overlap(overlap.axis, one, other, size) for one, other in pairwise(way) if one != other]

    def cast(self, missing: tuple[str, ...]) -> None:
        """Make it vary over mesh axes over which it does not."""
        if missing:
            self.changes.append(Cast(missing))
            self.varies.update(missing)

    def _change(self, change: Change, axis: int, becomes: Cut | None) -> None:
        self.changes.append(change)
        self.now = self.now.with_cut(axis, becomes)


def _missing(cut: Cut, varies: set[str]) -> tuple[str, ...]:
    """The mesh axes over which a value in this cut varies and one that varies over `varies` does not."""
    return tuple(name for name in sorted(spread(cut.axes)) if name not in varies)


def _gathers_back(cut: Cut, missing: int, size: int, mesh: MeshShape) -> bool:
    """Whether the gradients of slices are gathered: those of equal copies, and an all-reduce would send no less.

    On the wire an all-reduce sends its bytes twice, an all-gather those of all blocks, padding included, once.
    """
    plain = cut.window is None and not cut.striped and not any(map(is_time, cut.axes))
    return plain and missing == len(cut.axes) and 0 < cut.block * mesh.size(cut.axes) <= 2 * size


def _is_dealt(cut: Cut, size: int, mesh: MeshShape) -> bool:
    """Whether an all-to-all leads from the blocks of a striped cut to its stripes: every device sends each the same."""
    devices = mesh.size(cut.axes)
    return not any(map(is_time, cut.axes)) and cut.block * devices == size and cut.block % devices == 0


def _is_cheaper(overlaps: list[Overlap], mesh: MeshShape) -> bool:
    """Whether neighbour exchanges move less than a gather would."""
    source = overlaps[0].source
    assert source is not None
    moved = sum(sent_cells(each, mesh) for each in overlaps)
    return source.window is not None or moved < source.block * mesh.size(source.axes)


def _next_exchange(now: Layout, target: Layout) -> tuple[int, int] | None:
    """An axis whose cut is wanted on another one that is whole, and this other one."""
    for axis in range(len(now.cuts)):
        other = _exchange_target(now, target, axis)
        if other is not None:
            return axis, other
    return None


def _exchange_target(now: Layout, target: Layout, axis: int) -> int | None:
    have, stays = now.cuts[axis], target.cuts[axis]
    if have is None or (stays is not None and set(stays.axes) & set(have.axes)):
        return None
    for other, wanted in enumerate(target.cuts):
        is_free = other != axis and now.cuts[other] is None
        if is_free and wanted is not None and wanted.axes == have.axes and not wanted.striped:
            return other
    return None


def _refinement(have: Cut, wanted: Cut | None, mesh: MeshShape) -> Cut | None:
    """The cut of a block into the smaller blocks that are wanted, where they lie inside it: free."""
    if wanted is None or wanted.axes[: len(have.axes)] != have.axes or have.striped or wanted.striped:
        return None
    inner = wanted.axes[len(have.axes) :]
    return Cut(inner, wanted.block) if inner and wanted.block * mesh.size(inner) == have.block else None


def _kept_prefix(have: Cut, wanted: Cut | None, mesh: MeshShape) -> int:
    """How many of the outer mesh axes may stay: the blocks of what remains must be those that are wanted."""
    if wanted is None or have.axes[: len(wanted.axes)] != wanted.axes or have.striped or wanted.striped:
        return 0
    inner = mesh.size(have.axes[len(wanted.axes) :])
    return len(wanted.axes) if have.block * inner == wanted.block else 0


def _grouped(axes: tuple[str, ...], varying: frozenset[str]) -> list[tuple[tuple[str, ...], bool]]:
    """Split into runs of equal variance, the innermost run first."""
    groups: list[tuple[tuple[str, ...], bool]] = []
    for axis in reversed(axes):
        if groups and groups[-1][1] == (axis in varying):
            groups[-1] = ((axis, *groups[-1][0]), groups[-1][1])
        else:
            groups.append(((axis,), axis in varying))
    return groups
