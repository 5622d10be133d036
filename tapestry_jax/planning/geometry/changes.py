"""Changes of layout: the named steps from one layout to another, each with its price."""

from __future__ import annotations

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.halo import NeighbourExchange, neighbour_exchange
from tapestry_jax.planning.geometry.layout import Cut, Layout, stored_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import is_time, spread


@dataclass(frozen=True)
class Cast:
    """Equal copies become values of their own. Free forwards; backwards their gradients are added up (all-reduce)."""

    axes: tuple[str, ...]


@dataclass(frozen=True)
class Slice:
    """Every device keeps its block of one axis. Free.

    Of a value that is `alike` on all devices of the cut, the gradients of the blocks are put together (all-gather)
    where a cast before the slice would add up whole arrays that are zero but for a block (all-reduce).
    """

    axis: int
    cut: Cut
    size: int
    alike: bool = False


@dataclass(frozen=True)
class Gather:
    """All-gather of one axis over mesh axes; `size` cells remain. `varying` results transpose to a reduce-scatter."""

    axis: int
    axes: tuple[str, ...]
    size: int
    varying: bool


@dataclass(frozen=True)
class Exchange:
    """All-to-all: the cut moves from the axis `source` (of `size` cells) to the axis `target`."""

    source: int
    target: int
    size: int
    target_size: int
    cut: Cut


@dataclass(frozen=True)
class Deal:
    """All-to-all along one axis: from blocks to the stripes of `cut`, or from stripes to its blocks."""

    axis: int
    cut: Cut


@dataclass(frozen=True)
class Reorder:
    """An axis that every device holds whole, in the order of the stripes of `cut`, gets its own order back. Free."""

    axis: int
    cut: Cut
    size: int


@dataclass(frozen=True)
class Overlap:
    """Neighbour exchange along one axis of `size` cells: from the cut `source`, or whole, to `cut`. Free if no hops."""

    axis: int
    source: Cut | None
    cut: Cut
    size: int

    def exchange(self, mesh: MeshShape) -> NeighbourExchange:
        """Who sends what to whom."""
        return neighbour_exchange(self.source, self.cut, self.size, mesh.size(self.cut.axes))


@dataclass(frozen=True)
class Share:
    """What the last device along `axes` holds becomes a copy on all of them (all-reduce). Free backwards."""

    axes: tuple[str, ...]


Change = Cast | Slice | Gather | Exchange | Deal | Reorder | Overlap | Share


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
    brought, which fills the corners), then the cast.
    """
    changes: list[Change] = []
    now, state = source, {*source.axes, *held}
    final = target
    for axis, (have, wanted) in enumerate(zip(source.cuts, target.cuts, strict=True)):
        if have is not None and wanted is not None and have != wanted:
            # Stripes and blocks of the same devices differ by one exchange, before or behind all others.
            if have.striped and have.axes == wanted.axes and _is_dealt(have, shape[axis], mesh):
                have = have.in_blocks
                changes.append(Deal(axis, have))
                now = now.with_cut(axis, have)
            elif wanted.striped and _is_dealt(wanted, shape[axis], mesh):
                wanted = wanted.in_blocks
                target = target.with_cut(axis, wanted)
        overlaps = (have is not None and have.window is not None) or (wanted is not None and wanted.window is not None)
        striped = (have is not None and have.striped) or (wanted is not None and wanted.striped)
        if have is not None and wanted is not None and have.axes == wanted.axes and not striped:
            in_space = not any(map(is_time, have.axes))
            if overlaps or (
                have != wanted and in_space and _is_cheaper(Overlap(axis, have, wanted, shape[axis]), mesh)
            ):
                target = target.with_cut(axis, have)
        elif overlaps:
            if have is not None and have.window is not None:
                plain = stored_cut(have, shape[axis], mesh)
                assert plain is not None
                changes.append(Overlap(axis, have, plain, shape[axis]))
                now = now.with_cut(axis, plain)
            if wanted is not None and wanted.window is not None:
                is_free = have is None and not set(wanted.axes) & source.axes
                target = target.with_cut(axis, None if is_free else stored_cut(wanted, shape[axis], mesh))

    def sliced(axis: int, wanted: Cut) -> None:
        missing = _missing(wanted, state)
        alike = _gathers_back(wanted, len(missing), local_size(axis), mesh)
        if missing and not alike:
            changes.append(Cast(missing))
        state.update(missing)
        changes.append(Slice(axis, wanted, shape[axis], alike))

    def local_size(axis: int) -> int:
        have = now.cuts[axis]
        return shape[axis] if have is None else have.extent

    def cut(axis: int) -> None:
        nonlocal now
        wanted = target.cuts[axis]
        assert wanted is not None
        sliced(axis, wanted)
        now = now.with_cut(axis, wanted)

    for axis, wanted in enumerate(target.cuts):
        if wanted is not None and now.cuts[axis] is None and not set(wanted.axes) & source.axes:
            cut(axis)

    def exchange(axis: int, move: int) -> None:
        nonlocal now
        given, wanted_cut = now.cuts[axis], target.cuts[move]
        assert given is not None and wanted_cut is not None
        changes.append(Exchange(axis, move, shape[axis], shape[move], wanted_cut))
        if given.striped:
            changes.append(Reorder(axis, given, shape[axis]))
        now = now.with_cut(axis, None).with_cut(move, wanted_cut)

    # One exchange may free the axis that another needs: from `y:a z:b` to `x:a y:b` the first moves `a`.
    while (move := _next_exchange(now, target)) is not None:
        exchange(*move)
    for axis in range(len(shape)):
        have, wanted = now.cuts[axis], target.cuts[axis]
        if have is None or have == wanted:
            continue
        finer = _refinement(have, wanted, mesh)
        if finer is not None and not set(finer.axes) & source.axes:
            sliced(axis, finer)
            now = now.with_cut(axis, wanted)
            continue
        move = _exchange_target(now, target, axis)
        if move is not None:
            exchange(axis, move)
            continue
        kept = _kept_prefix(have, wanted, mesh)
        for axes, is_varying in _grouped(have.axes[kept:], varying):
            # The innermost mesh axes hold neighbouring blocks, so they are gathered first.
            # Blocks that stay are whole blocks, those of an axis smaller than one too.
            size = shape[axis] if wanted is None or not kept else max(shape[axis], wanted.block)
            changes.append(Gather(axis, axes, size, is_varying))
            if not is_varying:
                state.difference_update(axes)
        if have.striped:
            changes.append(Reorder(axis, have, shape[axis]))
        now = now.with_cut(axis, wanted if kept else None)
    for axis, wanted in enumerate(target.cuts):
        if wanted is not None and now.cuts[axis] is None:
            cut(axis)
    last = [(axis, have, wanted) for axis, (have, wanted) in enumerate(zip(now.cuts, final.cuts, strict=True))]
    changes += [Deal(axis, wanted) for axis, have, wanted in last if wanted and wanted.striped and have != wanted]
    overlaps = [
        Overlap(axis, have, wanted, shape[axis])
        for axis, have, wanted in last
        if wanted is not None and have != wanted and not wanted.striped
    ]
    # What costs nothing makes the exchanges smaller.
    for overlap in sorted(overlaps, key=lambda each: bool(each.exchange(mesh).hops)):
        missing = _missing(overlap.cut, state)
        if missing:
            changes.append(Cast(missing))
            state.update(missing)
        if overlap.source is not None and not _is_cheaper(overlap, mesh):
            changes.append(Gather(overlap.axis, overlap.cut.axes, overlap.size, varying=True))
            overlap = Overlap(overlap.axis, None, overlap.cut, overlap.size)
        changes.append(overlap)
    missing = tuple(name for name in mesh.names if name in varying and name not in state)
    if missing:
        changes.append(Cast(missing))
    return tuple(changes)


def _missing(cut: Cut, state: set[str]) -> tuple[str, ...]:
    """The mesh axes over which a value in this cut varies and one in `state` does not."""
    return tuple(name for name in sorted(spread(cut.axes)) if name not in state)


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


def _is_cheaper(overlap: Overlap, mesh: MeshShape) -> bool:
    """Whether a neighbour exchange moves less than a gather would."""
    assert overlap.source is not None
    return overlap.source.window is not None or overlap.exchange(mesh).cells < overlap.source.block * mesh.size(
        overlap.source.axes
    )


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


def changed_shape(shape: tuple[int, ...], change: Change, mesh: MeshShape) -> tuple[int, ...]:
    """The local shape after a change."""
    sizes = list(shape)
    match change:
        case Cast() | Deal() | Reorder() | Share():
            pass
        case Slice(axis, cut):
            sizes[axis] = cut.extent
        case Gather(axis, axes, size, _):
            sizes[axis] = min(shape[axis] * mesh.size(axes), size)
        case Exchange(source, target, size, _, cut):
            sizes[source] = size
            sizes[target] = cut.block
        case Overlap(axis, _, cut, _):
            sizes[axis] = cut.extent
    return tuple(sizes)
