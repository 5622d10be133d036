"""Running a neighbour exchange: permutations of the overlap, and pieces put together from what is held and arrives.

Where ranges of devices tell an exchange what arrives stands side by side, and one slice takes what is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import finite, pad_axis, pad_front
from tapestry_jax.lowering.on_device.taken import take_cells
from tapestry_jax.planning.geometry.drift import Drift
from tapestry_jax.planning.geometry.halo import NeighbourExchange, Pair
from tapestry_jax.planning.geometry.pieces import Piece, Table


def exchange_neighbours(value: Any, axis: int, exchange: NeighbourExchange, axes: tuple[str, ...], here: Here) -> Any:
    """Bring one axis of this device's piece to what the exchange wants; gradients go back the same way."""
    index = here.index(axes)
    parts = [value]
    for hop in exchange.hops:
        sent = _joined([value], axis, hop.sent, (), index)
        parts.append(permute_over(sent, axes, hop.pairs, here))
    return _joined(parts, axis, exchange.held, exchange.inside, index)


def exchange_drifting(value: Any, axis: int, drift: Drift, extent: int, axes: tuple[str, ...], here: Here) -> Any:
    """Bring one axis of this device's piece to `extent` cells, as ranges of devices tell; gradients go back so."""
    devices, index = here.size(axes), here.index(axes)
    parts: list[Any] = []
    for number, (distance, length) in enumerate(zip(drift.distances.tolist(), drift.lengths.tolist(), strict=True)):
        if not distance:
            parts.append(value)
            continue
        pairs, starts = drift.sent(number, devices)
        parts.append(permute_over(_slice(value, axis, starts, length, index), axes, pairs, here))
    joined = parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)
    places, first, end = drift.read(devices)
    before = max(0, -int(places.min()))
    joined = pad_front(joined, axis, joined.shape[axis] + before)
    joined = pad_axis(joined, axis, max(joined.shape[axis], int(places.max()) + before + extent))
    found = _slice(joined, axis, places + before, extent, index)
    columns = lax.broadcasted_iota(jnp.int32, found.shape, axis)
    if first.any() or (end < extent).any():
        # Zeros, or what belongs to others, could make a gradient NaN: any cell that is at hand will do.
        is_read = (columns >= _of(first, index)) & (columns < _of(end, index))
        found = jnp.where(is_read, found, lax.stop_gradient(finite(lax.slice_in_dim(value, 0, 1, axis=axis))))
    if drift.outside is not None:
        low, step, size = drift.outside
        starts = low + step * np.arange(devices)
        first, end = (np.clip(at - starts, 0, extent) for at in (0, size))
        if first.any() or (end < extent).any():
            is_inside = (columns >= _of(first, index)) & (columns < _of(end, index))
            found = jnp.where(is_inside, found, jnp.zeros((), found.dtype))
    return found


def _joined(parts: Sequence[Any], axis: int, pieces: Sequence[Piece], inside: Sequence[Pair], index: Any) -> Any:
    if not pieces:
        return lax.slice_in_dim(parts[0], 0, 0, axis=axis)
    found = [_piece(parts, axis, piece, inside, index) for piece in pieces]
    return found[0] if len(found) == 1 else lax.concatenate(found, axis)


def _piece(parts: Sequence[Any], axis: int, piece: Piece, inside: Sequence[Pair], index: Any) -> Any:
    if piece.table is not None:
        sources = [lax.slice_in_dim(parts[part], start, stop, axis=axis) for part, start, stop in piece.ranges]
        source = sources[0] if len(sources) == 1 else lax.concatenate(sources, axis)
        found = take_cells(source, jnp.asarray(piece.table, jnp.int32)[index], axis)
    elif len(set(piece.starts)) == 1:
        start = piece.starts[0]
        found = lax.slice_in_dim(parts[piece.part], start, start + piece.length, axis=axis)
    else:
        start = jnp.asarray(piece.starts, jnp.int32)[index]
        found = lax.dynamic_slice_in_dim(parts[piece.part], start, piece.length, axis)
    return _masked(found, axis, piece, inside, index) if piece.masked else found


def _masked(found: Any, axis: int, piece: Piece, inside: Sequence[Pair], index: Any) -> Any:
    low, high = jnp.asarray(inside, jnp.int32)[index]
    columns = lax.broadcasted_iota(jnp.int32, found.shape, axis) + piece.at
    return jnp.where((columns >= low) & (columns < high), found, jnp.zeros((), found.dtype))


def _slice(value: Any, axis: int, starts: Table, length: int, index: Any) -> Any:
    if (starts == starts[0]).all():
        return lax.slice_in_dim(value, int(starts[0]), int(starts[0]) + length, axis=axis)
    return lax.dynamic_slice_in_dim(value, _of(starts, index), length, axis)


def _of(table: Table, index: Any) -> Any:
    """What a table says of this device; a constant where it says the same of all."""
    return int(table[0]) if (table == table[0]).all() else jnp.asarray(table, jnp.int32)[index]
