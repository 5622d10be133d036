"""Running a neighbour exchange: permutations of the overlap, and pieces put together from what is held and arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.geometry.halo import NeighbourExchange, Pair, Piece


def exchange_neighbours(value: Any, axis: int, exchange: NeighbourExchange, axes: tuple[str, ...], here: Here) -> Any:
    """Bring one axis of this device's piece to what the exchange wants; gradients go back the same way."""
    index = here.index(axes)
    parts = [value]
    for hop in exchange.hops:
        sent = _joined([value], axis, hop.sent, (), index)
        parts.append(permute_over(sent, axes, hop.pairs, here))
    return _joined(parts, axis, exchange.held, exchange.inside, index)


def _joined(parts: Sequence[Any], axis: int, pieces: Sequence[Piece], inside: Sequence[Pair], index: Any) -> Any:
    if not pieces:
        return lax.slice_in_dim(parts[0], 0, 0, axis=axis)
    found = [_piece(parts, axis, piece, inside, index) for piece in pieces]
    return found[0] if len(found) == 1 else lax.concatenate(found, axis)


def _piece(parts: Sequence[Any], axis: int, piece: Piece, inside: Sequence[Pair], index: Any) -> Any:
    if piece.table is not None:
        sources = [lax.slice_in_dim(parts[part], start, stop, axis=axis) for part, start, stop in piece.ranges]
        source = sources[0] if len(sources) == 1 else lax.concatenate(sources, axis)
        places = jnp.asarray(piece.table, jnp.int32)[index]
        found = jnp.take(source, places, axis=axis, mode="clip")
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
