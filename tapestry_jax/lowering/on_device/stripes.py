"""Stripes: cells dealt to devices in turn, and the axis in its own order again.

The places of a striped axis are numbered device by device. Every device has `piece` of them; where they are more than
the cells, the last devices have fewer cells, or none, and leave the round early.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import where_valid
from tapestry_jax.lowering.on_device.taken import take_cells
from tapestry_jax.planning.geometry.layout import Cut


def cells_at(places: Any, cut: Cut, size: int) -> Any:
    """The cells, int32, that lie at some places of a striped axis of `size` cells."""
    full, rest = divmod(size, cut.piece)
    device, row = places // cut.piece, places % cut.piece
    # In the first `rest` rounds one device more takes part.
    return row * full + jnp.minimum(row, rest) + device


def places_of(cells: Any, cut: Cut, size: int) -> Any:
    """The places, int32, at which some cells of a striped axis lie."""
    full, rest = divmod(size, cut.piece)
    early = cells < rest * (full + 1)
    left, devices = jnp.where(early, cells, cells - rest * (full + 1)), jnp.where(early, full + 1, max(full, 1))
    row = left // devices + jnp.where(early, 0, rest)
    return left % devices * cut.piece + row


def stripe(value: Any, axis: int, cut: Cut, size: int, here: Here) -> Any:
    """The cells of this device, or this turn, of an axis that it holds whole and in order."""
    index = here.index(cut.axes)
    if size % cut.piece == 0:
        rounds = value.reshape(*value.shape[:axis], cut.piece, size // cut.piece, *value.shape[axis + 1 :])
        return lax.dynamic_index_in_dim(rounds, index, axis + 1, keepdims=False)
    own = index * cut.piece + jnp.arange(cut.piece, dtype=jnp.int32)
    cells = take_cells(value, cells_at(jnp.clip(own, 0, size - 1), cut, size), axis)
    valid = (own < size).reshape([-1 if at == axis else 1 for at in range(value.ndim)])
    return where_valid(valid, cells)


def in_order(value: Any, axis: int, cut: Cut, size: int) -> Any:
    """An axis of `size` cells that is held whole, place after place, in its own order."""
    if size % cut.piece == 0:
        devices = value.reshape(*value.shape[:axis], size // cut.piece, cut.piece, *value.shape[axis + 1 :])
        return jnp.swapaxes(devices, axis, axis + 1).reshape(value.shape)
    places = places_of(jnp.arange(size, dtype=jnp.int32), cut, size)
    return take_cells(value, places, axis)


def deal(value: Any, axis: int, cut: Cut, here: Here) -> Any:
    """From blocks to the stripes of `cut`, or from stripes to its blocks: one all-to-all along the axis."""
    before, after = value.shape[:axis], value.shape[axis + 1 :]
    devices = here.size(cut.axes)
    if cut.striped:
        # The cells of a block, round by round: those of one device are a column.
        split = value.reshape(*before, 1, cut.block // devices, devices, *after)
        moved = lax.all_to_all(split, cut.axes, axis + 2, axis, tiled=True)
    else:
        split = value.reshape(*before, devices, cut.block // devices, 1, *after)
        moved = lax.all_to_all(split, cut.axes, axis, axis + 2, tiled=True)
    return moved.reshape(value.shape)
