"""Walking a graph and the loops in it: every operation and every loop, with its path from the top."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from combinators.frozen import dataclass
from combinators.graphs.nodes import Apply, Loop

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph


@dataclass(frozen=True)
class Place:
    """Where an operation or a loop stands.

    Attributes:
      path: from the top, through the loops around it.
      graph: the graph that holds it: the program, or the body of a loop.
      index: its number there.
    """

    path: str
    graph: Graph
    index: int


def places(graph: Graph, prefix: str = "") -> Iterator[tuple[Place, Apply | Loop]]:
    """Every operation and every loop, in order; what stands in a loop follows the loop."""
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Apply | Loop):
            yield Place(prefix + node.path, graph, index), node
        if isinstance(node, Loop):
            yield from places(node.body, f"{prefix}{node.path}/")


def operations(graph: Graph) -> Iterator[tuple[Place, Apply]]:
    """Every operation, those inside loops too."""
    return ((place, node) for place, node in places(graph) if isinstance(node, Apply))


def loops(graph: Graph) -> Iterator[tuple[Place, Loop]]:
    """Every loop, those inside loops too."""
    return ((place, node) for place, node in places(graph) if isinstance(node, Loop))
