"""The structural key of a graph: equal for equal computations, whatever their paths and input names."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from typing import TYPE_CHECKING

from combinators.graphs.nodes import Apply, Input, Loop, Node, Rename, needed_nodes
from combinators.index_space.naming import is_coined
from combinators.index_space.tensor_type import TensorType

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph


def graph_key(graph: Graph) -> str:
    """A SHA-256 over operations, types, axis names and wiring of what the outputs need."""
    lines = [line for _, line in _lines(graph)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def node_marks(graph: Graph) -> list[tuple[str, str]]:
    """Four characters for every node that the key counts, with its path; what stands in a loop follows the loop.

    They are too short to tell graphs apart, and long enough to say where two differ first, if their keys do.
    """
    found: list[tuple[str, str]] = []
    for node, line in _lines(graph):
        path = node.path if node is not None else "the outputs"
        if isinstance(node, Loop):
            line = line.replace(node.body.key, "")
        found.append((path, hashlib.sha256(line.encode()).hexdigest()[:4]))
        if isinstance(node, Loop):
            found += [(f"{path}/{inner}", mark) for inner, mark in node_marks(node.body)]
    return found


def _lines(graph: Graph) -> list[tuple[Node | None, str]]:
    """What the key says of every node, and of the outputs."""
    needed = needed_nodes(graph)
    order = [i for i, node in enumerate(graph.nodes) if i in needed or isinstance(node, Input)]
    moved = {old: new for new, old in enumerate(order)}
    name = _Names(graph.suggested)
    outputs = "outputs " + " ".join(f"{moved[ref.node]}.{ref.output}" for _, ref in graph.outputs)
    return [*((graph.nodes[i], _line(graph.nodes[i], moved, name)) for i in order), (None, outputs)]


class _Names:
    """Axis names as the key sees them: those that nobody gave (`_0`, `n_1`) count from the graph's first one.

    So equal layers of one graph have equal keys, whatever their anonymous axes are called.
    """

    def __init__(self, suggested: Set[str]) -> None:
        self._suggested = suggested
        self._seen: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if name not in self._suggested and not is_coined(name):
            return name
        return self._seen.setdefault(name, f"_{len(self._seen)}")

    def type(self, kind: TensorType) -> str:
        """The text of a type."""
        names = [name if name is None else self(name) for name in kind.names]
        return str(TensorType.make(names, kind.shape, kind.dtype))


def _line(node: Node, moved: dict[int, int], name: _Names) -> str:
    wires = " ".join(f"{moved[ref.node]}.{ref.output}" for ref in node.operands)
    types = "; ".join(map(name.type, node.results))
    match node:
        case Input():
            return f"input {types}"
        case Rename():
            return f"rename {[(name(old), name(new)) for old, new in node.names]} {wires} {types}"
        case Loop():
            turns = f"{node.length}{' until' * node.until}"
            return f"loop {turns} {node.over} {node.carries} {node.axes} {node.body.key} {wires} {types}"
        case Apply():
            # The name of an operation is a label, as its path is.
            names = [(dim, name(bound)) for dim, bound in sorted(node.names)]
            return f"apply {node.operation.fingerprint} {names} {wires} {types}"
