"""What a change of layout does to the pieces that devices hold: as it is run, whatever its layouts are said to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combinators.index_space.box import Box
from tapestry_jax.planning.arrivals.ranges import range_fault
from tapestry_jax.planning.arrivals.tables import table_fault
from tapestry_jax.planning.geometry.changes import Cast, Change, Deal, Exchange, Gather, Overlap, Reorder, Share, Slice
from tapestry_jax.planning.geometry.drift import Drift, drifts
from tapestry_jax.planning.geometry.fewer import fewer
from tapestry_jax.planning.geometry.halo import NeighbourExchange
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import in_time, label
from tapestry_jax.planning.proof.pieces import Piece, digits_of, piece_of, whole
from tapestry_jax.planning.proof.site import Site, check_same, refuse

Pieces = list[Piece]


def changed(pieces: Sequence[Piece], changes: Sequence[Change], shape: Sequence[int], site: Site, path: str) -> Pieces:
    """The pieces after some changes of a tensor of this global shape.

    Raises:
      PlanError: for a change that does not bring together what belongs together.
    """
    held = list(pieces)
    for change in changes:
        if any(axis < 0 for axis in _axes_of(change)):
            refuse(path, "changes an axis that is not there", f"got {change}")
        match change:
            case Cast(axes, order):
                site.check_axes(axes, path)
                if order and sorted(order) != [*range(len(shape))]:
                    refuse(path, "puts gradients in an order of axes that is none", f"got {order} of {len(shape)} axes")
            case Share(axes):
                site.check_axes(axes, path)
            case Slice(axis, cut, _, alike):
                site.check_axes(cut.axes, path)
                if alike:
                    _check_alike(held, cut, site, path)
                held[axis] = sliced(held[axis], cut, shape[axis], site, path)
            case Gather(axis, axes, size, _):
                site.check_axes(axes, path)
                if in_time(axes):
                    refuse(path, f"gathers over {label(in_time(axes)[0])}, which is no mesh axis")
                _check_others(held, (axis,), axes, site, path, "gathers")
                joined = joined_along(held[axis], axes, shape[axis], site, path)
                held[axis] = replace(joined, extent=min(joined.extent, size))
            case Exchange():
                held = _exchanged(held, change, shape, site, path)
            case Deal(axis, cut):
                _check_others(held, (axis,), cut.axes, site, path, "deals cells")
                held[axis] = _dealt(held[axis], cut, shape[axis], site, path)
            case Reorder(axis, cut, _):
                ordered = replace(whole(shape[axis]), deal=held[axis].deal)
                check_same(
                    site, path, "puts an axis in order that is not whole", [ordered], [held[axis]], ("orders", "holds")
                )
                if held[axis].deal != (cut.piece if cut.piece < shape[axis] else 0):
                    what = f"stripes of {held[axis].deal}" if held[axis].deal else "blocks"
                    refuse(path, f"puts {what} in order as stripes of {cut.piece}", f"cells [0:{shape[axis]}]")
                held[axis] = whole(shape[axis])
            case Overlap(axis, source, cut, _):
                site.check_axes(cut.axes, path)
                plain = (each for each in (source, cut) if each is not None)
                if any(each.axes != cut.axes or each.striped for each in plain):
                    own, other = (", ".join(each.axes) if each is not None else "" for each in (source, cut))
                    first = Box((cut.block,), (2 * cut.block,))
                    told = f"blocks over ({own}), wanted over ({other}): the second, {first}, lies on another device"
                    refuse(path, "exchanges cells with neighbours of another order", told)
                wanted = piece_of(source, shape[axis], site.mesh)
                check_same(
                    site, path, "exchanges other cells than it holds", [wanted], [held[axis]], ("exchanges", "holds")
                )
                if check_exchange(change, shape[axis], site, path):
                    if in_time(cut.axes):
                        refuse(path, "exchanges cells with neighbours of another turn")
                    _check_others(held, (axis,), cut.axes, site, path, "exchanges cells")
                held[axis] = piece_of(cut, shape[axis], site.mesh)
    return held


def _axes_of(change: Change) -> tuple[int, ...]:
    match change:
        case Cast() | Share():
            return ()
        case Exchange():
            return change.source, change.target
        case _:
            return (change.axis,)


def check_exchange(change: Overlap, size: int, site: Site, path: str) -> bool:
    """Follow an exchange of an axis of `size` cells; returns whether anything is sent.

    In the middle of an axis all devices do the same one block further on, so that as many as a window reaches over at
    either end, and those that have less than a block, or none, stand for all. Between blocks of two sizes, where every
    device is another case, and of windows too wide for tables all are proved by ranges.

    Raises:
      PlanError: with the first cells that a device would read, and does not get.
    """
    devices = site.mesh.size(change.cut.axes)
    if change.source is not None and drifts(change.source, change.cut):
        drift = change.exchange(site.mesh)
        assert isinstance(drift, Drift)
        _refused(path, range_fault(drift, change.source, change.cut, size, devices))
        return drift.sends
    small = fewer(change.source, change.cut, size, devices)
    source, cut, size, devices = small.source, small.cut, small.size, small.devices
    # The same exchange along one axis of a smaller mesh.
    along = ("devices",)
    smaller = Overlap(change.axis, source and replace(source, axes=along), replace(cut, axes=along), size)
    exchange = smaller.exchange(MeshShape((("devices", devices),)))
    assert isinstance(exchange, NeighbourExchange)
    _refused(path, table_fault(exchange, source, cut, size, devices))
    return bool(exchange.hops)


def _refused(path: str, fault: tuple[str, str] | None) -> None:
    if fault is not None:
        refuse(path, *fault)


def sliced(piece: Piece, cut: Cut, size: int, site: Site, path: str) -> Piece:
    """A part of what a device has of an axis: its own, or that of a turn."""
    if cut.striped:
        check_same(site, path, "takes stripes of an axis that is not whole", [whole(size)], [piece], ("takes", "holds"))
        # Every position takes the places of one device, all its chunks together.
        deal = cut.piece if cut.piece < size else 0
        return Piece(digits_of(cut.axes, cut.piece, site.mesh), 0, cut.piece, deal)
    end = cut.block * (site.mesh.size(cut.axes) - 1) + cut.extent
    # Behind all cells lies padding; behind a part of them lie the cells of others.
    has_all = not piece.digits and piece.window is None and piece.extent >= size
    if end > piece.extent and not has_all:
        told = f"the last slice ends at {end}, of {piece.extent} cells"
        refuse(path, "takes a slice that reaches beyond what a device holds", told)
    digits = dict(piece.digits)
    for axis, step in digits_of(cut.axes, cut.block, site.mesh):
        digits[axis] = digits.get(axis, 0) + step
    return Piece(tuple(sorted(digits.items())), piece.low, cut.extent, piece.deal, piece.window)


def joined_along(piece: Piece, axes: Sequence[str], size: int, site: Site, path: str) -> Piece:
    """The pieces of devices, or of turns, side by side, the outermost axis first; behind `size` cells lies padding."""
    digits, extent = dict(piece.digits), piece.extent
    if piece.window is not None or piece.low:
        refuse(path, "puts pieces side by side that overlap", f"each has {extent} cells, from {piece.low} on")
    for axis in reversed(axes):
        count = site.mesh.size((axis,))
        if count == 1:
            continue
        step = digits.pop(axis, 0)
        # Where the first piece has all cells there are, the others are padding, wherever they are said to begin.
        if step != extent and min(step, extent) < size:
            boxes = f"[0:{extent}] and [{step}:{step + extent}]"
            refuse(
                path, f"puts pieces side by side along `{axis}` that are no neighbours", f"the first two are {boxes}"
            )
        extent *= count
    return Piece(tuple(sorted(digits.items())), 0, extent, piece.deal)


def _exchanged(held: Pieces, change: Exchange, shape: Sequence[int], site: Site, path: str) -> Pieces:
    source, target, cut = change.source, change.target, change.cut
    site.check_axes(cut.axes, path)
    _check_others(held, (source, target), cut.axes, site, path, "exchanges pieces")
    given, size = whole(shape[target]), shape[source]
    check_same(site, path, "sends pieces of an axis that is not whole", [given], [held[target]], ("sends", "holds"))
    joined = joined_along(held[source], cut.axes, size, site, path)
    found = list(held)
    found[source] = replace(joined, extent=change.size)
    if joined.extent < size or cut.block * site.mesh.size(cut.axes) < shape[target] or cut.striped or cut.window:
        refuse(path, f"exchanges {joined.extent} of {size} cells for {cut.block} of {shape[target]}")
    found[target] = piece_of(cut, shape[target], site.mesh)
    return found


def _dealt(piece: Piece, cut: Cut, size: int, site: Site, path: str) -> Piece:
    """Blocks for stripes, or stripes for blocks: every device sends each the same number of cells."""
    devices = site.mesh.size(cut.axes)
    if in_time(cut.axes) or cut.block * devices != size or cut.block % devices:
        refuse(path, f"deals {size} cells, {cut.block} a device, to {devices} devices, which does not divide")
    made = piece_of(cut, size, site.mesh)
    given = replace(made, deal=0 if cut.striped else cut.block if cut.block < size else 0)
    check_same(site, path, "deals other cells than it holds", [given], [piece], ("deals", "holds"))
    return made


def _check_alike(held: Pieces, cut: Cut, site: Site, path: str) -> None:
    """Gradients of slices are put together only where all devices slice the same, over mesh axes alone."""
    if in_time(cut.axes) or cut.striped or cut.window is not None:
        refuse(path, f"puts gradients of slices together over ({', '.join(cut.axes)}), which are no blocks of a mesh")
    site.check_together(held, cut.axes, path, "puts gradients of slices together")


def _check_others(held: Pieces, own: tuple[int, ...], axes: Sequence[str], site: Site, path: str, what: str) -> None:
    others = [piece for number, piece in enumerate(held) if number not in own]
    site.check_together(others, axes, path, what)
    digit = site.differs_along((replace(held[n], digits=_without(held[n], axes)) for n in own), axes)
    if digit is not None:
        refuse(path, f"{what} along {', '.join(axes)}, whose devices are in different turns of {digit}")


def _without(piece: Piece, axes: Sequence[str]) -> tuple[tuple[str, int], ...]:
    return tuple((axis, step) for axis, step in piece.digits if axis not in axes)
