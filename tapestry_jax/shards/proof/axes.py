"""One axis at a time: whether ranges cover it, hold one another, or are what a projection says. Pieces are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from combinators.index_space.axis import Axis
from combinators.index_space.boundary import BOUNDARIES
from combinators.index_space.box import Box
from combinators.index_space.projection import Projection
from tapestry_jax.shards.ranges import (
    Intervals,
    Range,
    answered,
    end_in_digits,
    joined,
    missing,
    points,
    size_of,
    spelled,
)

MOST = 2**18
"""Devices and turns that are looked at one by one, along one axis."""

Counts = tuple[tuple[str, int], ...]
Pinned = tuple[tuple[str, int], ...]


@lru_cache(maxsize=2**16)
def cover_fault(own: Range, size: int, counts: Counts) -> str | None:
    """What keeps the indices of a range from covering `[0, size)` exactly once; None where nothing does.

    Copies along coordinates that do not move it are one.
    """
    limits = (own.limit[0] + own.before, own.limit[1] - own.after) if own.wraps else own.limit
    if limits != (0, size):
        return f"its indices are [{limits[0]}:{limits[1]}] of [0:{size}]"
    known = dict(counts)
    if _follows(own, size, known):
        return None
    if size_of(known, own.coordinates) > MOST:
        return f"{size_of(known, own.coordinates)} pieces, too many to be counted"
    parts = sorted(own.owned(point) for point in points(known, own.coordinates))
    end = 0
    for low, high in (part for part in parts if part[0] < part[1]):
        if low > end:
            return f"no block holds [{end}:{low}]"
        if low < end:
            return f"[{low}:{min(high, end)}] is held twice"
        end = high
    return None if end >= size else f"no block holds [{end}:{size}]"


def _follows(own: Range, size: int, counts: Mapping[str, int]) -> bool:
    """Whether blocks follow one another as the digits of a number do, none is clipped, and they are enough."""
    limits = (own.limit[0] + own.before, own.limit[1] - own.after) if own.wraps else own.limit
    if limits[0] > 0 or limits[1] < size:
        return False
    end = end_in_digits(own, counts)
    return end is not None and end >= size


@lru_cache(maxsize=2**16)
def order_fault(own: Range, order: tuple[str, ...], counts: Counts) -> str | None:
    """Where blocks, taken in an order of coordinates, do not come in the order of their indices; None where they do.

    Args:
      own: the blocks.
      order: all coordinates that move it, the outermost first.
      counts: of these.
    """
    known, before = dict(counts), (own.limit[0], own.limit[0])
    if size_of(known, order) > MOST:
        is_told = end_in_digits(own, known) is not None
        return None if is_told else f"{size_of(known, order)} pieces, too many to be counted"
    for point in points(known, order):
        part = own.owned(point)
        if part[0] < part[1]:
            if part[0] < before[1]:
                return f"on {spelled(point)}: [{part[0]}:{part[1]}] comes behind [{before[0]}:{before[1]}]"
            before = part
    return None


@lru_cache(maxsize=2**16)
def holds_all(own: Range, size: int, counts: Counts, pinned: Pinned) -> str | None:
    """The first cells of an axis that no device holds in any turn; None where there are none."""
    known = {**dict(counts)}
    if own.is_plain and not pinned and not own.deal and _follows(own, size, known):
        return None
    if size_of(known, own.coordinates) > MOST:
        return "pieces that are too many to be counted"
    fixed = dict(pinned)
    held = joined(part for point in points(known, own.coordinates) for part in _cells(own, {**point, **fixed}, size))
    lost = missing([(0, size)], held)
    return None if lost is None else f"nobody holds [{lost[0]}:{lost[1]}]"


@lru_cache(maxsize=2**16)
def reach_fault(
    source: Range, target: Range, size: int, over: tuple[str, ...], counts: Counts, pinned: Pinned, wanted: Pinned
) -> str | None:
    """What a device wants of an axis and does not find; None where it finds everything.

    Args:
      source: what devices hold in every turn.
      target: what they want.
      size: of the axis.
      over: the coordinates along which a device looks.
      counts: of all coordinates.
      pinned: where alone the source is held.
      wanted: where alone the target is.
    """
    if source == target and pinned == wanted:
        return None
    known, fixed, at = dict(counts), dict(pinned), dict(wanted)
    stay = tuple(dict.fromkeys(name for name in (*source.coordinates, *target.coordinates) if name not in over))
    along = tuple(name for name in source.coordinates if name in over)
    if source.is_plain and not fixed and not source.deal and set(source.coordinates) <= set(over):
        # Everything there is, wherever it is wanted.
        if _follows(source, size, known):
            return None
    asks = (*stay, *(name for name in target.coordinates if name in over))
    if size_of(known, asks) > MOST or size_of(known, (*stay, *along)) > MOST:
        return "pieces that are too many to be counted"
    found: dict[tuple[int, ...], Intervals] = {}
    for point in points(known, asks):
        if any(point.get(name, value) != value for name, value in at.items()):
            continue
        need = _cells(target, point, size)
        if not need:
            continue
        key = tuple(point[name] for name in stay)
        if key not in found:
            here = {name: point[name] for name in stay}
            places = ({**here, **more, **fixed} for more in points(known, along))
            found[key] = joined(part for place in places for part in _cells(source, place, size))
        lost = missing(need, found[key])
        if lost is not None:
            held = ", ".join(f"[{low}:{high}]" for low, high in found[key][:3]) or "nothing"
            wants = ", ".join(f"[{low}:{high}]" for low, high in need[:3])
            return f"on {spelled(point)}: wants {wants}, finds {held}; [{lost[0]}:{lost[1]}] is not there"
    return None


@lru_cache(maxsize=2**16)
def projection_fault(
    axis: Axis,
    said: Range,
    dims: tuple[tuple[str, Range], ...],
    sizes: tuple[tuple[str, int], ...],
    size: int,
    counts: Counts,
    is_made: bool = False,
) -> str | None:
    """Where a box is not what the index box projects to; None where it is everywhere.

    Where several dimensions move one axis, a block may hold all of the axis, and take what it needs. Where a device has
    no index it may hold what it does not read; of what is made it makes nothing.
    """
    known, index = dict(counts), dict(dims)
    names = tuple(dict.fromkeys(name for name in axis.names if name in index))
    moving = tuple(dict.fromkeys((*said.coordinates, *(each for name in names for each in index[name].coordinates))))
    if any(index[name].deal for name in names):
        same = axis.is_bare and said == index[names[0]]
        return None if same else f"cells of `{names[0]}` are dealt in turn, those of axis `{axis}` are not"
    if said.deal:
        return f"cells of axis `{axis}` are dealt in turn, its dimension's are not"
    if size_of(known, moving) > MOST:
        return "pieces that are too many to be counted"
    row = Projection.from_axes((axis,), names, dict(sizes))
    is_all = not said.coordinates and said.is_plain and said.low == 0 and said.count == size
    for point in points(known, moving):
        parts = [index[name].indices(point) for name in names]
        if any(low >= high for low, high in parts):
            span = said.span(point)
            if is_made and span[0] < span[1]:
                return f"on {spelled(point)}: without an index nothing is made, the box says [{span[0]}:{span[1]}]"
            continue
        box = row.project_box(Box(tuple(low for low, _ in parts), tuple(high for _, high in parts)))
        span = said.span(point)
        if box.is_empty and span[0] >= span[1]:
            continue
        if (box.start[0], box.stop[0]) == span:
            continue
        if is_all and (len(names) > 1 or any(term.coefficient < 0 for term in axis.terms) or "~" in "".join(moving)):
            continue
        told = f"projects to [{box.start[0]}:{box.stop[0]}], the box says [{span[0]}:{span[1]}]"
        return f"on {spelled(point)}: axis `{axis}` {told}"
    return None


def bounds_fault(own: Range, size: int) -> str | None:
    """What of a range lies outside of its axis without a boundary that answers; None where nothing does."""
    if own.count < 0 or own.width < 0 or own.stride < 1 or own.before < 0 or own.after < 0 or own.deal < 0:
        return "counts that are negative"
    if own.mode not in BOUNDARIES:
        return f"the boundary {own.mode!r}, which is none"
    if own.deal and ((own.offset, own.stride, own.width) != (0, 1, 1) or own.mode != "valid"):
        return "windows of cells that have been dealt"
    low, high = own.limit
    if own.mode != "valid" or not reaches_outside(own, size):
        return None
    first, last = own.offset + own.stride * low, own.offset + own.stride * (high - 1) + own.width
    return f"cells [{first}:{last}] of [0:{size}]"


def reaches_outside(own: Range, size: int) -> bool:
    """Whether any index of a range reads cells outside of an axis."""
    low, high = own.limit
    if low >= high or not own.width:
        return False
    return own.offset + own.stride * low < 0 or own.offset + own.stride * (high - 1) + own.width > size


def _cells(own: Range, point: Mapping[str, int], size: int) -> Intervals:
    """The cells of the tensor that a device has, or wants, those that a boundary reads too."""
    held = own.held(point)
    if own.mode == "valid" or own.deal:
        return joined((max(low, 0), min(high, size)) for low, high in held)
    return answered(held, size, own.mode)


def counted(counts: Mapping[str, int], ranges: Sequence[Range], more: Sequence[str] = ()) -> Counts:
    """The counts of the coordinates that matter, in an order of their own."""
    names = {name for own in ranges for name in own.coordinates} | set(more)
    return tuple(sorted((name, counts[name]) for name in names))
