"""Replacing operations of a graph before it is scheduled; types, names and paths stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop, Node
from combinators.operations.operation import Operation


def with_operations(graph: Graph, change: Callable[[Graph, Apply, str], Operation], prefix: str = "") -> Graph:
    """The graph with `change(graph, node, path)` in place of every operation, those inside loops too."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Loop):
            node = replace(node, body=with_operations(node.body, change, f"{prefix}{node.path}/"))
        elif isinstance(node, Apply):
            node = replace(node, operation=change(graph, node, prefix + node.path))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
