"""Copies of boxes, within a tensor or between two: the target gets a new version with the blocks that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.arguments import read_mapping
from combinators.errors import message
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.blocks.store import BlockLost
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.drafts import discard, sync, told, withdrawing
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.moving.reading import missing, part_of
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.boxes import Box, Piece, pieces, read_box, shape_of, shown, slices
from tapestry_jax.fabric.tensors.casting import check_cast, converted
from tapestry_jax.fabric.tensors.records import Block, Kind, Made, Version

_OPTIMISTIC = 4
"""How often others may come between before they are kept out."""
MOST_MADE = 64
"""How many copies into one block are remembered; then nobody computes it again."""
Read = Callable[[Box], Any]


@dataclass(frozen=True)
class Written:
    """What a box of a tensor is to be.

    Attributes:
      box: of the target.
      read: what belongs into a box within it.
      source: the version that is read, and what JSON says of the copy; None for what came from memory.
    """

    box: Box
    read: Read
    source: tuple[int, Mapping[str, Any]] | None = None


def axis_order(source: TensorType, target: TensorType, rename: Any, where: str) -> tuple[int, ...]:
    """Which axis of the source each axis of the target is: by names where all have them, else by position.

    Raises:
      FabricError: where ranks or names differ.
    """
    renamed = read_mapping(rename, f"rename= of {where}", FabricError)
    unknown = [name for name in renamed if name not in source.names]
    names = tuple(renamed.get(name, name) for name in source.names)
    ranks_fit = source.ndim == target.ndim and not unknown
    if ranks_fit and None not in names and {*names} == {*target.names} and len({*names}) == len(names):
        return tuple(names.index(name) for name in target.names)
    if not ranks_fit or any(a != b for a, b in zip(names, target.names, strict=True) if a and b):
        remedy = 'Say which is which, such as rename={"seq": "keys"}.'
        details = f"the source is {source}", f"the target is {target}"
        raise FabricError(message(f"{where}: the axes are not the same", *details, remedy=remedy))
    return tuple(range(source.ndim))


def source_part(opened: Opened, name: str, version: Version, box: Box) -> Any:
    """A box of a version: one part of a block as it lies there, on devices where it does, else on the host."""
    kind = version.kind
    touched = list(pieces(box, kind.type.shape, kind.chunks))
    if len(touched) == 1:
        block = reads.block(opened.catalogue, version.number, touched[0].position)
        return part_of(opened, name, kind, touched[0], block)
    made = np.empty(shape_of(box), kind.type.dtype)
    for piece in touched:
        block = reads.block(opened.catalogue, version.number, piece.position)
        made[slices(piece.part, box)] = np.asarray(part_of(opened, name, kind, piece, block))
    return made


def moved(
    opened: Opened, source: tuple[str, Version], boxes: tuple[Box, Box], order: Sequence[int], dtype: Any, where: str
) -> Read:
    """What a copy puts into a box of its target."""
    name, version = source
    start, into = boxes
    place = [order.index(axis) for axis in range(len(order))]

    def read(box: Box) -> Any:
        inner = tuple((a - low, b - low) for (a, b), (low, _) in zip(box, into, strict=True))
        wanted = tuple(
            (inner[place[axis]][0] + start[axis][0], inner[place[axis]][1] + start[axis][0])
            for axis in range(len(order))
        )
        found = source_part(opened, name, version, wanted)
        if version.kind.type.dtype != dtype:
            found = converted(np.asarray(found), dtype, f"{where}, box {shown(box, (None,) * len(box))} of the target")
        return found if tuple(order) == tuple(range(len(order))) else found.transpose(tuple(order))

    return read


def copy(opened: Opened, source: str, source_box: Any, target: str, target_box: Any, cast: bool, rename: Any) -> None:
    """Copy a box into one of the same sizes.

    Raises:
      FabricError: for tensors that are not there, axes, boxes or dtypes that do not fit, lost blocks, or a full disk.
    """
    where = f"copy {source!r} -> {target!r}"
    with opened.pinned([source]) as (read_from,):
        into = opened.version(target).kind.type
        given = read_from.kind.type
        order = axis_order(given, into, rename, where)
        check_cast(given.dtype, into.dtype, cast, where)
        boxes = read_box(source_box, given, f"{where}: the source"), read_box(target_box, into, f"{where}: the target")
        sizes = tuple(shape_of(boxes[0])[axis] for axis in order)
        if sizes != shape_of(boxes[1]):
            details = f"expected {shown(boxes[0], given.names)}", f"got {shown(boxes[1], into.names)}"
            raise FabricError(message(f"{where}: the boxes differ in size", *details, remedy="Give boxes of one size."))
        read = moved(opened, (source, read_from), boxes, order, into.dtype, where)
        detail = {"from": boxes[0], "to": boxes[1], "order": order}
        write_box(opened, target, into, Written(boxes[1], read, (read_from.number, detail)))


def write_box(opened: Opened, name: str, type: TensorType, written: Written) -> None:
    """Give a tensor a new version, in which a box is something else.

    Others may write into the tensor meanwhile: blocks that they changed are made again, and in the end nobody else may.

    Raises:
      FabricError: where the tensor is gone or has another type, a block is lost, or the disk is full.
    """
    for _ in range(_OPTIMISTIC):
        if _attempt(opened, name, type, written):
            break
    else:
        with opened.catalogue.writing():
            done = _attempt(opened, name, type, written)
            assert done, "nobody else writes"
    opened.cleared()


def _attempt(opened: Opened, name: str, type: TensorType, written: Written) -> bool:
    with opened.catalogue.reading():
        before = _same(opened, name, type)
        known = reads.blocks(opened.catalogue, before.number)
    made: dict[int, tuple[str, str]] = {}
    kind = before.kind
    touched = list(pieces(written.box, kind.type.shape, kind.chunks))
    try:
        with withdrawing(opened, made):
            for piece in touched:
                base = None if piece.is_all else known.get(piece.position)
                with told(name, kind, piece):
                    made[piece.position] = _block(opened, name, kind, piece, base, written.read)
            sync(opened, name)
    except LostMeanwhile:
        if _same(opened, name, type).number == before.number:
            raise
        return False
    try:
        with opened.catalogue.writing():
            now = _same(opened, name, type)
            current = known if now.number == before.number else reads.blocks(opened.catalogue, now.number)
            fits = now.kind == kind and all(
                piece.is_all or known.get(piece.position) == current.get(piece.position) for piece in touched
            )
            if fits:
                _commit(opened, name, kind, current, made, written, touched)
    except BaseException:
        discard(opened, [file for file, _ in made.values()])
        raise
    if not fits:
        opened.blocks.remove([file for file, _ in made.values()])
        return False
    return True


class LostMeanwhile(FabricError):
    """A block of the target that is not there: it is lost, or the tensor has a new version by now."""


def _block(opened: Opened, name: str, kind: Kind, piece: Piece, base: Block | None, read: Read) -> tuple[str, str]:
    array = read(piece.part)
    if piece.is_all:
        return opened.blocks.put(array, kind)
    part = (slices(piece.part, piece.block), array)
    try:
        return opened.blocks.updated(base, shape_of(piece.block), kind, [part])
    except BlockLost as lost:
        raise LostMeanwhile(str(missing(name, kind, piece, lost.why))) from lost


def _same(opened: Opened, name: str, type: TensorType) -> Version:
    now = opened.version(name)
    if now.kind.type != type:
        told = f"it was {type}, and is {now.kind.type}"
        raise FabricError(message(f"{name!r} was replaced meanwhile", told, remedy="Do it again."))
    return now


def _commit(
    opened: Opened,
    name: str,
    kind: Kind,
    current: Mapping[int, Block],
    made: Mapping[int, tuple[str, str]],
    written: Written,
    touched: Sequence[Piece],
) -> None:
    """Inside of a transaction: the new version, with how its blocks came to be."""
    operation = None
    if written.source is not None:
        number, detail = written.source
        operation = writes.add_operation(opened.catalogue, "copy", detail, [number], None)
    blocks = dict(current)
    for piece in touched:
        before = () if piece.is_all or piece.position not in current else current[piece.position].made
        history: Made = None
        if operation is not None and before is not None and len(before) < MOST_MADE:
            history = (*before, (operation, 0))
        file, checksum = made[piece.position]
        blocks[piece.position] = Block(file, checksum, history)
    writes.name_version(opened.catalogue, name, writes.add_version(opened.catalogue, kind, blocks))
    opened.changed()
