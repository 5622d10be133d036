"""Plans for a graph, drawn at random: dimensions over mesh axes, round a ring and in chunks, as a plan can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from combinators.errors import PlanError, message, spelt
from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Loop
from laws.errors import LawError
from tapestry_jax.by_hand import plan
from tapestry_jax.plan import Plan
from tapestry_jax.planning.entries.items import Chunks, Halo, Item, Ring, chunks, halo, ring, striped
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

Addition = tuple[str, Item]
"""One more thing for a dimension."""

_Entries = tuple[tuple[str, tuple[Item, ...]], ...]
LOOPS = (chunks(2), chunks(size=1), chunks(size=2), chunks(3))
MOST_LOOPS, MOST_RINGS = 3, 2


def plans(graph: Graph, mesh: Any) -> SearchStrategy[Plan]:
    """Draw plans of a graph by hand: mesh axes in blocks or stripes, rings, chunks in time, and halos of iterations.

    Each mesh axis cuts one dimension, or none; a dimension can have several. Dimensions come in any order, which is
    that of their loops. What a plan refuses is left out, and the rest stays. The simplest plan places nothing.

    Args:
      graph: from `tp.trace`.
      mesh: as for `tp.plan`.

    Returns:
      A strategy of plans; `plan.entries` says what was drawn.

    Raises:
      LawError: when `graph` is none.
      MeshError: when `mesh` is none.
    """
    if not isinstance(cast("Any", graph), Graph):
        raise LawError(
            message(
                "laws.plans: plans are of a graph.",
                f"got {type(graph).__name__}: {spelt(graph)}",
                remedy="Trace the program first: laws.plans(tp.trace(program, *types), mesh).",
            )
        )
    sizes = MeshShape.of(mesh)
    dims = dimensions(graph)
    if not dims or not sizes.names:
        return st.builds(plan, st.just(graph), st.just(mesh), st.just({}))
    axes = list(sizes.names)
    cut = st.tuples(
        st.permutations(axes), st.lists(st.sampled_from([None, *dims]), min_size=len(axes), max_size=len(axes))
    )
    dim = st.sampled_from(dims)
    drawn = st.tuples(
        st.permutations(dims),
        cut,
        st.lists(dim, max_size=1),
        st.lists(st.tuples(dim, st.sampled_from(axes).map(ring)), max_size=MOST_RINGS),
        st.lists(st.tuples(dim, st.sampled_from(LOOPS)), max_size=MOST_LOOPS),
        st.lists(st.tuples(st.sampled_from(iterated(graph) or dims), st.just(halo(2))), max_size=1),
    )
    # A search comes back to the same placements many times, and to parts of them always.
    planned = lru_cache(maxsize=1024)(lambda entries: _planned(graph, mesh, dict(entries)))
    return drawn.map(lambda parts: _drawn(planned, *parts))


def dimensions(graph: Graph) -> list[str]:
    """The dimensions of a graph's operations, those inside of loops too, in order."""
    return list(dict.fromkeys(dim for _, node in walk.operations(graph) for dim in node.bound.values()))


def iterated(graph: Graph) -> list[str]:
    """The dimensions of operations inside of loops."""
    return list(dict.fromkeys(dim for node in graph.nodes if isinstance(node, Loop) for dim in dimensions(node.body)))


def _planned(graph: Graph, mesh: Any, entries: dict[str, tuple[Item, ...]]) -> Plan | None:
    """The plan; None where these placements cannot hold."""
    try:
        return plan(graph, mesh, entries)
    except PlanError:
        return None


def _drawn(
    planned: Callable[[_Entries], Plan | None],
    order: Sequence[str],
    cut: tuple[Sequence[str], Sequence[str | None]],
    stripes: Sequence[str],
    rings: Sequence[Addition],
    loops: Sequence[Addition],
    halos: Sequence[Addition],
) -> Plan:
    """Add one thing after the other, and keep what the plan can hold."""
    found, entries = cast("Plan", planned(())), dict[str, tuple[Item, ...]]()
    cuts: list[Addition] = [(dim, axis) for axis, dim in zip(*cut, strict=True) if dim is not None]
    dealt = [(dim, None) for dim in stripes if any(dim == other for other, _ in cuts)]
    for dim, item in (*cuts, *dealt, *rings, *loops, *halos):
        before = entries.get(dim, ())
        wider = {**entries, dim: _striped(before) if item is None else tuple(sorted((*before, item), key=_rank))}
        held = planned(tuple((name, wider[name]) for name in order if name in wider))
        if held is not None:
            found, entries = held, wider
    return found


def _striped(items: Sequence[Item]) -> tuple[Item, ...]:
    """The same mesh axes, dealing the cells in turn; nothing else is placed yet."""
    return (striped(*(item for item in items if isinstance(item, str))),) if items else ()


def _rank(item: Item) -> int:
    """Mesh axes, ring, chunks, halo: the order in which a plan takes them."""
    return next((rank for rank, kind in enumerate((Ring, Chunks, Halo), 1) if isinstance(item, kind)), 0)
