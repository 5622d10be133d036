"""The placements of an operation: every mesh axis on one dimension that can be cut, or on none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from combinators.graphs.nodes import Apply
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.entries.placement import Placer, why_whole
from tapestry_jax.planning.geometry.layout import Cut, Layout, even_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.scheduling.reads import Cuts

Placed = Mapping[str, tuple[str, ...]]


def placements(node: Apply, shaped: Shaped, path: str, placer: Placer, axes: Sequence[str]) -> list[Cuts]:
    """All cuts that an operation can have in space; what the user fixed stays.

    Args:
      node: the operation.
      shaped: the same, at its shapes.
      path: its whole path.
      placer: what the user fixed.
      axes: of the mesh, those on which it may be placed.
    """
    mesh = placer.mesh
    fixed = placer.place(node, shaped, path)
    taken = {axis for axes in fixed.values() for axis in axes}
    free = [
        dim
        for dim, name in node.names
        if placer.is_free(name, path) and why_whole(shaped, dim) is None and shaped.sizes[dim] > 1
    ]
    axes = [axis for axis in axes if axis not in taken]
    found: list[Cuts] = []
    for chosen in spreads(axes, [shaped.sizes[dim] for dim in free], mesh):
        placed = {**fixed, **{dim: own for dim, own in zip(free, chosen, strict=True) if own}}
        cuts = {dim: even_cut(shaped.sizes[dim], placed[dim], mesh) for dim, _ in node.names if dim in placed}
        found.append({dim: cut for dim, cut in cuts.items() if cut is not None})
    return found


def even_layouts(sizes: Sequence[int], named: Sequence[bool], mesh: MeshShape, axes: Sequence[str]) -> list[Layout]:
    """All layouts in which an argument can be stored over some mesh axes: its named axes, where they divide."""
    found: list[Layout] = []
    for chosen in spreads(axes, sizes, mesh):
        cuts: list[Cut | None] = [even_cut(size, own, mesh) for size, own in zip(sizes, chosen, strict=True)]
        even = all(size % mesh.size(own) == 0 for size, own in zip(sizes, chosen, strict=True))
        if even and all(is_named or cut is None for is_named, cut in zip(named, cuts, strict=True)):
            found.append(Layout(tuple(cuts)))
    return found


def spreads(axes: Sequence[str], sizes: Sequence[int], mesh: MeshShape) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Every way to put mesh axes on dimensions, each on one or none, in every order of those that share one."""
    for targets in itertools.product(range(-1, len(sizes)), repeat=len(axes)):
        own = [tuple(axis for axis, at in zip(axes, targets, strict=True) if at == dim) for dim in range(len(sizes))]
        if all(mesh.shortens(size, each) for each, size in zip(own, sizes, strict=True)):
            yield from itertools.product(*(itertools.permutations(each) for each in own))
