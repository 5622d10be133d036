"""What devices send each other, from boxes: of moves of pieces, of states that are merged, of scans that go on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from combinators.frozen import dataclass
from tapestry_jax.planning.folding.traffic import sent_by_fold, sent_by_scan
from tapestry_jax.planning.geometry.changes import Overlap
from tapestry_jax.planning.geometry.hops import axes_apart, sent_hops
from tapestry_jax.planning.geometry.layout import Cut, Window, dense_bytes
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.shards.parts import Move, Piece, Program, Shared
from tapestry_jax.shards.pricing.computed import Priced
from tapestry_jax.shards.pricing.cuts import bytes_of, cells_of, dtype_of, extent
from tapestry_jax.shards.ranges import Range


@dataclass(frozen=True)
class Sent:
    """A collective: its kind, the mesh axes, bytes per device, and for how many alike it stands."""

    kind: str
    axes: tuple[str, ...]
    bytes: int
    alike: int = 1


def sent_by_move(
    shared: Shared, program: Program, move: Move, mesh: MeshShape
) -> Iterator[tuple[Hashable | None, Sent]]:
    """What a move of a piece sends each time, change by change in the order in which it names them.

    With each stands by what it is told from others of the same piece; None where it never is one of them.
    """
    source, result = program.pieces[move.source], program.pieces[move.result]
    if move.how == ("ring",):
        yield None, Sent("collective-permute", move.over, bytes_of(program, result))
        return
    if move.how == ("first stage",):
        along = _real(shared, shared.kinds[result.loops[-1]].along)
        apart = axes_apart([(0, mesh.size(along) - 1)], 1, along, mesh)
        yield None, Sent("collective-permute", apart, bytes_of(program, result))
        return
    if not move.over:
        return
    kind, current = dtype_of(program, source), list(source.box)
    for number, how in enumerate(move.how):
        match how:
            case "share":
                yield None, Sent("all-reduce", _real(shared, move.over), dense_bytes(cells_of(current), kind))
            case "all-gather":
                axis, lost = _gathered(shared, move, current, result, move.how[number:].count(how))
                full = dense_bytes(cells_of(current) * mesh.size(lost), kind)
                current[axis] = _together(current[axis], lost, mesh)
                yield (how, axis, tuple(current), number), Sent("all-gather", lost, full)
            case "all-to-all":
                each = _exchanged(shared, program, move, current, mesh)
                yield (how, tuple(current), number), each
            case "neighbours":
                yield from _from_neighbours(shared, program, current, result, mesh)
            case "slice":
                for axis, (own, wanted) in enumerate(zip(current, result.box, strict=True)):
                    elsewhere = {name for each in current if each is not own for name in each.coordinates}
                    gained = set(wanted.coordinates) - set(own.coordinates)
                    if gained and not gained & elsewhere and not _regathered(shared, own, wanted):
                        current[axis] = _stored(shared, wanted, program.values[result.value].type.shape[axis])
            case _:
                pass


def _exchanged(shared: Shared, program: Program, move: Move, current: list[Range], mesh: MeshShape) -> Sent:
    """An all-to-all: a cut goes from one axis to another, or the cells of one axis are dealt anew."""
    result = program.pieces[move.result]
    kind = dtype_of(program, result)
    for name in move.over:
        source = next((axis for axis, own in enumerate(current) if name in own.coordinates), None)
        target = next((axis for axis, own in enumerate(result.box) if name in own.coordinates), None)
        if source is None or target is None or source == target:
            continue
        wanted = result.box[target]
        gained = tuple(axis for axis in _lost(shared, wanted, current[target]) if axis in current[source].coordinates)
        others = cells_of([own for axis, own in enumerate(current) if axis != target])
        current[source] = _together(current[source], gained, mesh)
        current[target] = _stored(shared, wanted, program.values[result.value].type.shape[target])
        return Sent("all-to-all", gained, dense_bytes(others * current[target].count * mesh.size(gained), kind))
    for axis, (own, wanted) in enumerate(zip(current, result.box, strict=True)):
        if own.deal != wanted.deal:
            current[axis] = wanted
            return Sent("all-to-all", _real(shared, own.coordinates), dense_bytes(cells_of(current), kind))
    return Sent("all-to-all", (), 0)


def _together(own: Range, lost: Sequence[str], mesh: MeshShape) -> Range:
    """An axis that some mesh axes cut no longer."""
    kept = tuple(step for step in own.steps if step[0] not in lost)
    return replace(own, count=min(own.count * mesh.size(lost), own.limit[1]), steps=kept, deal=0)


def _stored(shared: Shared, wanted: Range, size: int) -> Range:
    """The blocks of an axis that are read like this, as they lie when nobody reads them: every cell once."""
    if wanted.is_plain:
        return wanted
    block, even = wanted.count * wanted.stride, -(-size // _size(shared.counts, wanted.coordinates))
    return Range(0, max(block, even), wanted.steps, (0, size))


def _from_neighbours(
    shared: Shared, program: Program, current: list[Range], result: Piece, mesh: MeshShape
) -> Iterator[tuple[Hashable, Sent]]:
    kind = dtype_of(program, result)
    shape = program.values[result.value].type.shape
    for axis, (own, wanted) in enumerate(zip(current, result.box, strict=True)):
        axes = _real(shared, _outermost_first(wanted))
        if own != wanted and not axes:
            # What a device answers for itself comes first.
            current[axis] = wanted
            return
    for axis, (own, wanted) in enumerate(zip(current, result.box, strict=True)):
        axes = _real(shared, _outermost_first(wanted))
        if own == wanted:
            continue
        had = None if not own.steps else Cut(axes, own.count * own.stride)
        window = Window(
            wanted.offset, wanted.width, wanted.stride, _indices(wanted), wanted.mode,
            wanted.before, wanted.after, wanted.wraps,
        )  # fmt: skip
        change = Overlap(axis, had, Cut(axes, wanted.count * wanted.stride, window), shape[axis])
        others = cells_of([each for other, each in enumerate(current) if other != axis])
        for hop in sent_hops(change, mesh):
            sent = Sent("collective-permute", hop.axes(axes, mesh), dense_bytes(others * hop.length, kind), hop.alike)
            yield (axis, axes, tuple(current), hop.key), sent
        current[axis] = wanted
        return


def sent_by_merge(known: Priced, over: Sequence[str], mesh: MeshShape, live: Sequence[int]) -> Iterator[Sent]:
    """What merging the states of a fold over mesh axes sends, of whose results `live` are read."""
    if not mesh.real(over):
        return
    for each in sent_by_fold(known.shaped, known.operands, known.cuts, mesh, live):
        yield Sent(each.kind, each.axes, each.bytes)


def sent_by_chain(known: Priced, mesh: MeshShape, live: Sequence[int], *, in_turns: bool) -> Iterator[Sent]:
    """What a scan sends whose blocks go on from device to device, of whose results `live` are read."""
    over = known.shaped.operation.over
    assert over is not None
    axes = tuple(axis for axis in known.cuts[over].axes if axis in mesh.names)
    cuts = {**known.cuts, over: Cut(axes, known.cuts[over].block)}
    for each in sent_by_scan(known.shaped, cuts, mesh, live, in_turns=in_turns):
        yield Sent(each.kind, each.axes, each.bytes)


def scattered(shared: Shared, program: Program, source: int, result: int, over: Sequence[str]) -> Sent | None:
    """The one collective of a sum of which every device keeps some cells; None where each keeps all."""
    before, after = program.pieces[source].box, program.pieces[result].box
    if len(before) != len(after):
        return None
    for axis, (own, wanted) in enumerate(zip(before, after, strict=True)):
        gained = _lost(shared, wanted, own)
        if set(gained) & set(over):
            others = cells_of([each for other, each in enumerate(before) if other != axis])
            cells = others * extent(wanted) * _size(shared.counts, gained)
            return Sent("reduce-scatter", gained, dense_bytes(cells, dtype_of(program, program.pieces[source])))
    return None


def _indices(own: Range) -> int:
    return own.limit[1] - own.after if own.wraps else own.limit[1]


def _gathered(
    shared: Shared, move: Move, current: Sequence[Range], result: Piece, left: int
) -> tuple[int, tuple[str, ...]]:
    """The axis that is brought together next, and the mesh axes that cut it no longer, in the order of the move.

    `left` gathers are to come: where that is more than there are axes, each brings together over one mesh axis.
    """
    needed = [_regathered(shared, own, wanted) for own, wanted in zip(current, result.box, strict=True)]
    for name in move.over:
        axis = next((axis for axis, own in enumerate(current) if name in own.coordinates), None)
        if axis is not None and (name in needed[axis] or "all-to-all" not in move.how):
            together = name in needed[axis] and left <= sum(map(bool, needed))
            return axis, needed[axis] if together else (name,)
    return 0, ()


def _regathered(shared: Shared, own: Range, wanted: Range) -> tuple[str, ...]:
    """The mesh axes over which an axis is brought together: all but the outermost that go on cutting it alike."""
    names, kept = _real(shared, _outermost_first(own)), dict(wanted.steps)
    if own.deal != wanted.deal:
        return names
    for number, name in enumerate(names):
        if kept.get(name) != dict(own.steps)[name]:
            return names[number:]
    return ()


def _outermost_first(own: Range) -> list[str]:
    return [name for name, _ in sorted(own.steps, key=lambda pair: -pair[1])]


def _lost(shared: Shared, before: Range, after: Range) -> tuple[str, ...]:
    """The mesh axes that cut the one range and not the other."""
    return tuple(name for name in _real(shared, before.coordinates) if name not in after.coordinates)


def _real(shared: Shared, names: Sequence[str]) -> tuple[str, ...]:
    kinds = shared.kinds
    return tuple(name for name in names if kinds[name].kind == "axis" and kinds[name].count > 1)


def _size(counts: Mapping[str, int], names: Sequence[str]) -> int:
    found = 1
    for name in names:
        found *= counts[name]
    return found
