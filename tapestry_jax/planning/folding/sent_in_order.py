"""What merging by `combine` alone sends, by each of the routes of `tapestry_jax.planning.folding.ordered`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from combinators.index_space.tensor_type import is_inexact
from combinators.merging.blocks import Axes
from tapestry_jax.planning.derivatives.dependence import Matrix
from tapestry_jax.planning.folding.merges import Merge, combined_from, merged_once, moving_leaves
from tapestry_jax.planning.folding.ordered import cell_count, fold_route, shared_out_bytes, tree_axes, tree_distances
from tapestry_jax.planning.folding.sent import Sent, alone, closure, merged, nbytes, permuted, sides
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


def sent_in_order(
    merge: Merge,
    axes: tuple[str, ...],
    mesh: MeshShape,
    carrier: Sequence[Axes],
    leaves: Sequence[Any],
    varies: Sequence[bool],
    wanted: set[int],
) -> Iterator[Sent]:
    """The collectives of an ordered merge.

    Args:
      merge: the monoid.
      axes: the mesh axes that it merges over, the outermost first.
      mesh: its shape.
      carrier: the axes of the leaves.
      leaves: their types on one device.
      varies: which of them differ from device to device.
      wanted: the numbers of those that are needed in the end.
    """
    if not wanted:
        return
    devices, matrix = mesh.size(axes), combined_from(merge, carrier, leaves)
    route = fold_route(carrier, leaves, devices)
    moving = moving_leaves(merge, carrier, leaves, varies)
    if route == "tree":
        yield from _along_tree(matrix, axes, mesh, leaves, varies, moving, wanted)
        return
    first = [leaf for leaf in sorted(closure(matrix, wanted)) if varies[leaf]]
    own = alone(len(leaves))
    if route == "gather":
        for leaf in first:
            yield Sent("all-gather", axes, nbytes(leaves[leaf]) * devices, leaves=own[leaf])
        return
    sizes = [shared_out_bytes(leaf, cell_count(carrier, leaves), devices) for leaf in leaves]
    for leaf in first:
        backward = "all-to-all" if is_inexact(leaves[leaf].dtype) else None
        yield Sent("all-to-all", axes, sizes[leaf], backward, own[leaf])
    for leaf in sorted(wanted):
        if moving[leaf]:
            yield Sent("all-gather", axes, sizes[leaf], leaves=frozenset(closure(matrix, {leaf})))


def _along_tree(
    matrix: Matrix,
    axes: tuple[str, ...],
    mesh: MeshShape,
    leaves: Sequence[Any],
    varies: Sequence[bool],
    moving: Sequence[bool],
    wanted: set[int],
) -> Iterator[Sent]:
    devices = mesh.size(axes)
    rounds, needed = tree_distances(devices), wanted
    exchanged: list[set[int]] = []
    for _ in rounds:
        earlier, own = sides(matrix, needed)
        exchanged.insert(0, earlier)
        needed = earlier | own
    # A leaf that is alike on all devices at first has no derivative before it has been merged with one that has.
    smooth, reach = list(varies), alone(len(leaves))
    for number, (distance, sent) in enumerate(zip(rounds, exchanged, strict=True)):
        apart = tree_axes(devices, distance, axes, mesh)
        for leaf in sorted(sent):
            if (moving if number else varies)[leaf]:
                yield permuted(leaves[leaf], apart, reach[leaf], smooth=smooth[leaf])
        smooth, reach = merged_once(matrix, smooth), merged(matrix, reach)
    for leaf in sorted(wanted):
        if moving[leaf]:
            yield Sent("all-reduce", axes, nbytes(leaves[leaf]), leaves=reach[leaf])
