"""Plans for a graph, drawn at random: every dimension over any mesh axes that a plan can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from combinators.errors import PlanError
from combinators.graph import Apply, Graph, Loop
from tapestry_jax.plan import Plan, plan


def plans(graph: Graph, mesh: Any) -> SearchStrategy[Plan]:
    """Draw plans of a graph by hand: each mesh axis cuts one dimension, or none; a dimension can have several.

    Args:
      graph: from `tp.trace`.
      mesh: as for `tp.plan`.

    Returns:
      A strategy of plans; `plan.entries` says what was drawn. Placements that the graph has no use for are left out.
    """
    dims = dimensions(graph)
    axes = list(mesh.axis_names)
    placed = st.tuples(
        st.permutations(axes), st.lists(st.sampled_from([None, *dims]), min_size=len(axes), max_size=len(axes))
    )
    drawn = placed.map(lambda pair: _placement(*pair)).map(lambda entries: _plan(graph, mesh, entries))
    return drawn.filter(lambda found: found is not None).map(_itself)


def dimensions(graph: Graph) -> list[str]:
    """The dimensions of a graph's operations, those inside of loops too, in order."""
    found: dict[str, None] = {}
    for node in graph.nodes:
        if isinstance(node, Apply):
            found |= dict.fromkeys(node.bound.values())
        elif isinstance(node, Loop):
            found |= dict.fromkeys(dimensions(node.body))
    return list(found)


def _placement(axes: Sequence[str], dims: Sequence[str | None]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for axis, dim in zip(axes, dims, strict=True):
        if dim is not None:
            found[dim] = (*found.get(dim, ()), axis)
    return found


def _plan(graph: Graph, mesh: Any, entries: dict[str, tuple[str, ...]]) -> Plan | None:
    try:
        return plan(graph, mesh, entries)
    except PlanError:
        return None


def _itself(found: Plan | None) -> Plan:
    assert found is not None
    return found
