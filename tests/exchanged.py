"""Neighbour exchanges by tables, simulated in NumPy on the pieces of all devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_jax.planning.geometry.halo import NeighbourExchange, Pair
from tapestry_jax.planning.geometry.pieces import Piece


def joined(parts: Sequence[Any], pieces: Sequence[Piece], inside: Sequence[Pair], device: int) -> Any:
    """What a device puts together of its parts."""
    columns: list[Any] = [np.zeros(0)]
    for piece in pieces:
        if piece.table is not None:
            source = np.concatenate([parts[part][start:stop] for part, start, stop in piece.ranges])
            found = source[piece.table[device]]
        else:
            start = piece.starts[device]
            found = parts[piece.part][start : start + piece.length]
        assert len(found) == piece.length
        if piece.masked:
            at = np.arange(piece.at, piece.at + piece.length)
            low, high = inside[device]
            found = np.where((at >= low) & (at < high), found, 0)
        columns.append(found)
    return np.concatenate(columns)


def simulated(exchange: NeighbourExchange, held: Sequence[Any]) -> list[Any]:
    """What every device holds after the exchange; devices that a permutation does not reach receive zeros."""
    parts: list[list[Any]] = [[piece] for piece in held]
    for hop in exchange.hops:
        assert len({source for source, _ in hop.pairs}) == len({target for _, target in hop.pairs}) == len(hop.pairs)
        sent = [joined([piece], hop.sent, (), device) for device, piece in enumerate(held)]
        arrived = [np.zeros(hop.length) for _ in held]
        for source, target in hop.pairs:
            arrived[target] = sent[source]
        for device, columns in enumerate(arrived):
            parts[device].append(columns)
    return [joined(each, exchange.held, exchange.inside, device) for device, each in enumerate(parts)]
