"""Fewer chunks where a dimension has not so many cells: a last batch is smaller than those that a plan was made for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from combinators.errors import PlanError
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Loop
from tapestry_jax.plan import Plan, asked_of
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Chunks, Item, Ring, axes_of
from tapestry_jax.planning.entries.read import Entries
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.resizing.replan import replan


def replan_in_fewer_chunks(plan: Plan, graph: Graph) -> Plan:
    """As `replan`, but with as many chunks as a device has cells where that is fewer than were asked for.

    Chunks are one after the other what is whole otherwise: the program computes the same in any number of them.

    Raises:
      PlanError: as `replan` does for everything else.
    """
    try:
        return replan(plan, graph)
    except PlanError:
        fewer = _in_fewer(plan, graph)
        if fewer is None:
            raise
    return replan(plan, graph, fewer)


def _in_fewer(plan: Plan, graph: Graph) -> Asked | None:
    """What a plan was asked for, with fewer chunks; None where they are all there."""
    cells, mesh, asked = _smallest(graph), MeshShape.of(plan.mesh), asked_of(plan)

    def fitted(items: tuple[Item, ...], size: int) -> Iterator[Item]:
        for at, item in enumerate(items):
            before = (*axes_of(items[:at]), *(each.axis for each in items[:at] if isinstance(each, Ring)))
            block = max(1, -(-size // mesh.size(before)))
            yield Chunks(block) if isinstance(item, Chunks) and (item.count or 0) > block else item

    def read(entries: Entries) -> Entries:
        return tuple((dim, tuple(fitted(items, cells[dim])) if dim in cells else items) for dim, items in entries)

    fewer = replace(asked, entries=read(asked.entries), ops=tuple((path, read(own)) for path, own in asked.ops))
    return None if fewer == asked else fewer


def _smallest(graph: Graph) -> dict[str, int]:
    """How many cells a dimension has at least, by name."""
    found: dict[str, int] = {}
    for name, size in _sizes(graph):
        found[name] = min(size, found.get(name, size))
    return found


def _sizes(graph: Graph) -> Iterator[tuple[str, int]]:
    for node in graph.nodes:
        for kind in node.results:
            yield from ((name, size) for name, size in zip(kind.names, kind.shape, strict=True) if name is not None)
        if isinstance(node, Loop):
            yield from _sizes(node.body)
