"""How states that no collective can merge meet: all at one place, along a tree, or cell by cell.

A monoid without a native collective and without a frame is merged by `combine` alone, in the order of the mesh. Three
routes keep this order, merge nothing twice and work for any number of devices `n`; `s` are the bytes of a state:

- `gather`: every device gathers all states and merges them itself; one collective of `n s` bytes.
- `tree`: neighbours merge, then neighbours of neighbours; the last device, which then holds the whole, hands it out by
  a masked sum. `ceil(log2 n)` permutes and one all-reduce, each of `s` bytes.
- `cells`: every device merges its own share of the cells of all states, and the shares are gathered; one all-to-all
  and one all-gather, each of `s` bytes.

The cheapest is taken, where a collective costs its bytes and as much again as `LATENCY` bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from combinators.merging.blocks import Axes, shared_axes
from tapestry_jax.planning.geometry.layout import dense_bytes
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

Route = Literal["gather", "tree", "cells"]
Pairs = tuple[tuple[int, int], ...]

LATENCY = 64 * 1024
"""What starting one more collective is worth, in bytes: see docs/design/lowering.md."""


def fold_route(carrier: Sequence[Axes], state: Sequence[Any], devices: int) -> Route:
    """How the states of a fold meet.

    Args:
      carrier: the axes of the leaves of a state.
      state: their types on one device.
      devices: how many states there are.

    Returns:
      The route with the smallest cost; at equal costs the one with fewer collectives.
    """
    size = sum(map(_nbytes, state))
    costs: dict[Route, int] = {
        "gather": LATENCY + devices * size,
        "cells": 2 * (LATENCY + _shared_out(carrier, state, devices)),
        "tree": (len(tree_distances(devices)) + 1) * (LATENCY + size),
    }
    return min(costs, key=lambda route: costs[route])


def tree_rounds(devices: int) -> tuple[Pairs, ...]:
    """Who sends to whom in each round of a tree that ends at the last device: pairs of positions, the earlier first."""
    rounds: list[Pairs] = []
    for distance in tree_distances(devices):
        # Counted from the end, so that the last device leads a group in every round, whatever their number.
        receivers = range(devices - 1, distance - 1, -2 * distance)
        rounds.append(tuple((receiver - distance, receiver) for receiver in receivers))
    return tuple(rounds)


def tree_distances(devices: int) -> tuple[int, ...]:
    """How far apart the pairs of each round of a tree are."""
    return tuple(2**number for number in range((devices - 1).bit_length()))


def tree_axes(devices: int, distance: int, axes: tuple[str, ...], mesh: MeshShape) -> tuple[str, ...]:
    """The mesh axes along which the partners of some pair of a round differ; no pair is written down for it.

    Counted from the last device, receivers are the multiples of `2 * distance`. The digit of `i + distance` at the
    place `p` is that of `i`, more by `distance // p`, and by one where the rest carries.
    """
    step, found, place = 2 * distance, list[str](), 1
    pairs = (devices - 1 - distance) // step + 1
    for axis in reversed(axes):
        size = mesh.size((axis,))
        whole, rest = divmod(distance, place)
        common = math.gcd(step, place)
        # Over a whole period the rests of the receivers are all multiples of what step and place have in common.
        if pairs >= place // common:
            carries = rest >= common
        else:
            carries = any(receiver % place >= place - rest for receiver in range(0, pairs * step, step))
        # The last device itself carries nothing.
        if whole % size or (carries and (whole + 1) % size):
            found.append(axis)
        place *= size
    return tuple(reversed(found))


def cell_count(carrier: Sequence[Axes], state: Sequence[Any]) -> int:
    """How many cells a block of states has."""
    shared = shared_axes(carrier)
    return math.prod(size for axis, size in zip(carrier[0], state[0].shape, strict=True) if axis in shared)


def share(cells: int, devices: int) -> int:
    """How many cells each device takes; the last ones may be padding."""
    return -(-cells // devices)


def shared_out_bytes(leaf: Any, cells: int, devices: int) -> int:
    """The bytes of a leaf whose cells are padded to equal shares."""
    whole = math.prod(leaf.shape)
    return dense_bytes(whole // cells * share(cells, devices) * devices, leaf.dtype) if cells else 0


def _shared_out(carrier: Sequence[Axes], state: Sequence[Any], devices: int) -> int:
    cells = cell_count(carrier, state)
    return sum(shared_out_bytes(leaf, cells, devices) for leaf in state)


def _nbytes(struct: Any) -> int:
    return dense_bytes(math.prod(struct.shape), struct.dtype)
