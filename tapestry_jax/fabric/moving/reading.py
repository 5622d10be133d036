"""Reading boxes of versions: block by block, each checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from combinators.errors import message
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.blocks.store import BlockLost
from tapestry_jax.fabric.catalogue import reads
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.boxes import Box, Piece, blocks_of, pieces, read_box, shape_of, shown, slices, whole
from tapestry_jax.fabric.tensors.casting import check_cast, converted
from tapestry_jax.fabric.tensors.records import Block, Kind, Version

_ATTEMPTS = 20


def read_now(opened: Opened, name: str, box: Callable[[Version], Box]) -> np.ndarray[Any, Any]:
    """A box of what a name stands for, as of one moment.

    Another process may replace the tensor while it is read, and remove its blocks: then it is read again, as it is now.

    Args:
      opened: the fabric.
      name: of the tensor.
      box: which, of the version that is found.

    Raises:
      FabricError: where a block is lost or damaged.
    """
    for attempt in range(_ATTEMPTS):
        # In one transaction: a version that is forgotten in between would look as if it had never been written.
        with opened.catalogue.reading():
            version = opened.version(name)
            wanted = box(version)
            known = blocks_for(opened, version, list(pieces(wanted, version.kind.type.shape, version.kind.chunks)))
        try:
            return _filled(opened, name, version, wanted, known)
        except BlockMissing:
            if opened.version(name).number == version.number or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError  # the last attempt raises


def read(opened: Opened, name: str, box: Any, cast: Any) -> np.ndarray[Any, Any]:
    """A box, given as a user gives it, of what a name stands for now; as another dtype where one is named.

    Raises:
      FabricError: where the tensor is not there, or a block of it is lost.
    """
    where = f"read {name!r}"
    found = read_now(opened, name, lambda now: read_box(box, now.kind.type, where))
    if cast is None:
        return found
    wanted = TensorType((), cast).dtype
    check_cast(found.dtype, wanted, True, where)
    return converted(found, wanted, where)


class BlockMissing(FabricError):
    """A block of a version that is not there, or not as it was written."""


def read_version(
    opened: Opened, name: str, version: Version, box: Box | None = None, into: Any = None
) -> np.ndarray[Any, Any]:
    """A box of a version, on the host.

    Args:
      opened: the fabric.
      name: what the version is called, for messages.
      version: which; pinned, so that it is not forgotten meanwhile.
      box: of it; None for all.
      into: an array to fill; by default a new one.

    Raises:
      BlockMissing: where a block is lost or damaged.
    """
    kind = version.kind
    box = whole(kind.type.shape) if box is None else box
    known = blocks_for(opened, version, list(pieces(box, kind.type.shape, kind.chunks)))
    return _filled(opened, name, version, box, known, into)


def _filled(
    opened: Opened,
    name: str,
    version: Version,
    box: Box,
    known: Sequence[tuple[Piece, Block | None]],
    into: Any = None,
) -> np.ndarray[Any, Any]:
    made = np.empty(shape_of(box), version.kind.type.dtype) if into is None else into
    for piece, block in known:
        made[slices(piece.part, box)] = np.asarray(part_of(opened, name, version.kind, piece, block))
    return made


def blocks_for(opened: Opened, version: Version, touched: Sequence[Piece]) -> list[tuple[Piece, Block | None]]:
    """The blocks of pieces; those from the first to the last are asked for at once where there are many."""
    if len(touched) < 8:
        return [(piece, reads.block(opened.catalogue, version.number, piece.position)) for piece in touched]
    found = reads.blocks(opened.catalogue, version.number, (touched[0].position, touched[-1].position))
    return [(piece, found.get(piece.position)) for piece in touched]


def part_of(opened: Opened, name: str, kind: Kind, piece: Piece, block: Block | None) -> Any:
    """What a piece has of its block; zeros where the block was never written.

    Raises:
      BlockMissing: where it is lost or damaged.
    """
    if block is None:
        return np.zeros(shape_of(piece.part), kind.type.dtype)
    try:
        return opened.blocks.part(block, shape_of(piece.block), kind, slices(piece.part, piece.block))
    except BlockLost as lost:
        raise missing(name, kind, piece, lost.why) from lost


def missing(name: str, kind: Kind, piece: Piece, why: str) -> BlockMissing:
    """The error of a block that is lost."""
    headline = f"{name!r}: its block {shown(piece.block, kind.type.names)} is lost"
    return BlockMissing(message(headline, why, remedy=f"Compute it again: fabric.recover({name!r})."))


def damages(opened: Opened, version: Version) -> list[Piece]:
    """The blocks of a version that are lost or damaged."""
    kind, known = version.kind, reads.blocks(opened.catalogue, version.number)
    return [
        piece
        for piece in blocks_of(kind.type.shape, kind.chunks)
        if (block := known.get(piece.position)) is not None
        and not opened.blocks.is_there(block, shape_of(piece.block), kind)
    ]
