"""Boxes in the words of planning: which coordinates cut a dimension, and how many cells a device holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tapestry_jax.planning.geometry.layout import Cut, Window, dense_bytes
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import chunk_axis
from tapestry_jax.shards.parts import Block, Coordinate, Piece, Program, Shared
from tapestry_jax.shards.ranges import Range


def mesh_of(shared: Shared) -> MeshShape:
    """The mesh that blocks lie on."""
    return MeshShape(tuple((each.name, each.count) for each in shared.coordinates if each.kind == "axis"))


def cuts_of(shared: Shared, block: Block) -> dict[str, Cut]:
    """The dimensions of a block that are cut, each over its coordinates, the outermost first.

    Loops are called as chunks of the dimension: what is computed and sent does not depend on what else they are.
    """
    kinds = shared.kinds
    found = {dim: _cut_of(dim, own, kinds) for dim, own in block.box}
    return {dim: cut for dim, cut in found.items() if cut is not None}


def _cut_of(dim: str, own: Range, kinds: Mapping[str, Coordinate]) -> Cut | None:
    if not own.steps and not (own.before or own.after):
        return None
    ordered = sorted(own.steps, key=lambda pair: -abs(pair[1]))
    axes = tuple(name if kinds[name].kind == "axis" else chunk_axis(dim, kinds[name].count) for name, _ in ordered)
    if not (own.before or own.after):
        return Cut(axes, own.count)
    count = own.limit[1] - own.after if own.wraps else own.limit[1]
    window = Window(0, 1, 1, count, "periodic" if own.wraps else "valid", own.before, own.after, own.wraps)
    return Cut(axes, own.count, window)


def extent(own: Range) -> int:
    """How many cells of an axis a device holds, padding included."""
    indices = own.count + own.before + own.after
    if not own.count or not own.width:
        return 0
    return indices if (own.stride, own.width) == (1, 1) else (indices - 1) * own.stride + own.width


def cells_of(box: Sequence[Range]) -> int:
    """How many cells a device holds, padding included."""
    return math.prod(map(extent, box))


def dtype_of(program: Program, piece: Piece) -> Any:
    """The dtype of a piece."""
    return program.values[piece.value].type.dtype


def bytes_of(program: Program, piece: Piece) -> int:
    """Bytes that a device holds of a piece, padding included."""
    return dense_bytes(cells_of(piece.box), dtype_of(program, piece))
