"""The structural key of a graph: equal for equal computations, whatever their paths and input names."""

from __future__ import annotations

import hashlib

from combinators.graph import Apply, Graph, Input, Loop, Node, Rename, needed_nodes
from combinators.kernels import fingerprint


def graph_key(graph: Graph) -> str:
    """A SHA-256 over operations, types, axis names and wiring of what the outputs need."""
    needed = needed_nodes(graph)
    order = [i for i, node in enumerate(graph.nodes) if i in needed or isinstance(node, Input)]
    moved = {old: new for new, old in enumerate(order)}
    lines = [_line(graph.nodes[i], moved) for i in order]
    lines.append("outputs " + " ".join(f"{moved[ref.node]}.{ref.output}" for _, ref in graph.outputs))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _line(node: Node, moved: dict[int, int]) -> str:
    wires = " ".join(f"{moved[ref.node]}.{ref.output}" for ref in node.operands)
    types = "; ".join(map(str, node.results))
    match node:
        case Input():
            return f"input {types}"
        case Rename():
            return f"rename {node.names} {wires} {types}"
        case Loop():
            return f"loop {node.length} {node.over} {node.carries} {node.axes} {node.body.key} {wires} {types}"
        case Apply():
            # The name of an operation is a label, as its path is.
            return f"apply {operation_fingerprint(node.operation)} {sorted(node.names)} {wires} {types}"


def operation_fingerprint(operation: object) -> str:
    """The structural text of an operation without its name."""
    from dataclasses import fields

    parts = [
        f"{item.name}={fingerprint(getattr(operation, item.name))}"
        for item in fields(operation)  # pyright: ignore[reportArgumentType]
        if item.name not in ("name", "signature")
    ]
    return f"{operation.signature} " + " ".join(parts)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
