"""Merging the states of all devices by `combine` alone, in the order of the mesh.

The routes are those of `tapestry_jax.planning.folding.ordered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.merging.blocks import Axes, combine_blocks, identity_block, merge_behind
from tapestry_jax.lowering.exchange.cells import cells_of
from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.on_device.varying import received, vary, varying_axes
from tapestry_jax.planning.folding.merges import Merge, moving_leaves
from tapestry_jax.planning.folding.ordered import fold_route, tree_rounds
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

State = list[Any]
Filled: TypeAlias = "NDArray[np.bool_] | None"


def merge_ordered(
    merge: Merge, carrier: Sequence[Axes], axes: tuple[str, ...], mesh: MeshShape, state: State, filled: Filled
) -> State:
    """Merge the states of all devices; the result is the same on each of them.

    Args:
      merge: how the leaves merge.
      carrier: their axes.
      axes: the mesh axes, the outermost first.
      mesh: its shape.
      state: of this device.
      filled: for every device along `axes` whether its state is of anything; None where each one is.
    """
    devices = mesh.size(axes)
    route = fold_route(carrier, state, devices)
    if route == "gather":
        return _balanced(merge, carrier, [_gathered(leaf, axes, devices) for leaf in state], filled)
    moving = moving_leaves(merge, carrier, state, [_varies(leaf, axes) for leaf in state])
    met = _along_tree if route == "tree" else _by_cells
    total = met(merge, carrier, axes, mesh, state, filled)
    if all(moving):
        return total
    # What is the same on all devices, such as a count of rows, is merged without being sent.
    alike = _balanced(merge, carrier, [_repeated(leaf, devices) for leaf in state], filled)
    return [leaf if moves else own for leaf, own, moves in zip(total, alike, moving, strict=True)]


def _balanced(merge: Merge, carrier: Sequence[Axes], stacked: State, filled: Filled) -> State:
    """Combine states, stacked in order along a leading axis, by a balanced tree; those of nothing take no part."""
    if filled is not None:
        runs = _runs(filled)
        stacked = [jnp.concatenate([leaf[first:end] for first, end in runs]) for leaf in stacked]
    count, rows = stacked[0].shape[0], [("state", *axes) for axes in carrier]
    while count > 1:
        even = count - count % 2
        left, right = ([leaf[first:even:2] for leaf in stacked] for first in (0, 1))
        paired = combine_blocks(merge.monoid, merge.tree, rows, left, right)
        stacked = (
            paired
            if even == count
            else [jnp.concatenate([leaf, rest[even:]]) for leaf, rest in zip(paired, stacked, strict=True)]
        )
        count -= count // 2
    return [leaf[0] for leaf in stacked]


def _runs(filled: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The ranges of places that are filled."""
    edges = np.flatnonzero(np.diff(filled.astype(np.int8), prepend=0, append=0))
    return [(first, end) for first, end in edges.reshape(-1, 2).tolist()]


def _gathered(leaf: Any, axes: tuple[str, ...], devices: int) -> Any:
    """A leaf of every device, in the order of the mesh."""
    if not _varies(leaf, axes):
        return _repeated(leaf, devices)
    return received(lax.all_gather(vary(leaf, axes), axes, axis=0, to="invarying"))


def _repeated(leaf: Any, devices: int) -> Any:
    return jnp.broadcast_to(leaf, (devices, *leaf.shape))


def _varies(leaf: Any, axes: tuple[str, ...]) -> bool:
    return bool(varying_axes(leaf) & set(axes))


def _by_cells(
    merge: Merge, carrier: Sequence[Axes], axes: tuple[str, ...], mesh: MeshShape, state: State, filled: Filled
) -> State:
    devices = mesh.size(axes)
    cells = cells_of(carrier, state, axes, devices)
    shares = [
        cells.trade(number, leaf) if _varies(leaf, axes) else cells.own(number, leaf)
        for number, leaf in enumerate(state)
    ]
    merged = _balanced(merge, cells.row, shares, filled)
    return [cells.hand_out(number, leaf) for number, leaf in enumerate(merged)]


def _along_tree(
    merge: Merge, carrier: Sequence[Axes], axes: tuple[str, ...], mesh: MeshShape, state: State, filled: Filled
) -> State:
    devices, index = mesh.size(axes), lax.axis_index(axes)
    unit = identity_block(merge.monoid, merge.tree, carrier, state)
    for pairs in tree_rounds(devices):
        distance = pairs[0][1] - pairs[0][0]
        # Who receives nothing sees zeros, which are not the identity.
        receives = ((devices - 1 - index) % (2 * distance) == 0) & (index >= distance)
        moved = [permute_over(leaf, axes, pairs, mesh) if _varies(leaf, axes) else leaf for leaf in state]
        earlier = [jnp.where(receives, leaf, one) for leaf, one in zip(moved, unit, strict=True)]
        there, some = receives, True
        if filled is not None:
            met = np.zeros_like(filled)
            met[[receiver for _, receiver in pairs]] = filled[[sender for sender, _ in pairs]]
            there, some = _at(met, index), _at(filled, index)
            filled = met | filled
        state = merge_behind(merge.monoid, merge.tree, carrier, earlier, state, there, some=some)
    return [_of_last(leaf, index == devices - 1, axes) for leaf in state]


def _at(table: NDArray[np.bool_], index: Any) -> Any:
    return lax.dynamic_index_in_dim(jnp.asarray(table), index, keepdims=False)


def _of_last(leaf: Any, is_last: Any, axes: tuple[str, ...]) -> Any:
    """The value of the one device where `is_last`, on all of them."""
    if leaf.dtype == jnp.bool_:
        return received(lax.psum(jnp.where(is_last, leaf, False).astype(jnp.uint8), axes)).astype(jnp.bool_)
    return received(lax.psum(jnp.where(is_last, leaf, jnp.zeros_like(leaf)), axes))
