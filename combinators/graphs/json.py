"""Graphs as JSON text: versioned, with a checksum, and checked when read.

Equal operations stand once, in a table. Nothing is pickled: kernels are public names. A file is data until its checksum
was compared; then every name is held against what the reader allows, and only then are types checked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast, final

from combinators.errors import FormatError, GraphError, TapestryError, message
from combinators.frozen import dataclass
from combinators.graphs.check import check_graph, check_inputs
from combinators.graphs.nodes import DEEPEST_LOOPS, Apply, Input, Loop, Node, Ref, Rename
from combinators.index_space.tensor_type import TensorType
from combinators.operations.json import operation_from_json, operation_to_json
from combinators.operations.operation import Operation
from combinators.stored.codec import decode, encode
from combinators.stored.json import (
    LARGEST_TEXT,
    REMEDY,
    boolean,
    entries,
    integer,
    listed,
    malformed,
    readable_errors,
    shown,
    text_of,
)
from combinators.stored.readable import Readable
from combinators.stored.sealed import Sealed
from combinators.stored.step_budget import bounded_steps
from combinators.stored.trees import tree_from_json, tree_to_json

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph

_FILE = Sealed("graph", "tapestry-graph", 1, "graph", "trace the program again")
_LARGEST_SIZE = 2**63
_LONGEST_LABEL = 4096
_MOST_AXES = 64


def graph_to_json(graph: Graph) -> str:
    """Store a graph as JSON text.

    Args:
      graph: every kernel in it has a public importable name.

    Returns:
      One line of JSON: format, version, checksum and content. `graph_from_json` reads it to a graph of equal `key`.

    Raises:
      KernelError: when a kernel, a monoid or an aggregator has no public name.
      GraphError: when no file may be as large, or as deeply nested.
    """
    _check_labels(graph, graph)
    content = _graph_to_json(graph, 0)
    text = json.dumps(_FILE.seal(content))
    if len(text) > LARGEST_TEXT:
        raise _unstorable(graph, f"it takes {len(text)} characters, a file at most {LARGEST_TEXT}")
    return text


def graph_from_json(text: str, allow: Sequence[str], make: type[Graph]) -> Graph:
    """Read a graph back. Safe on texts of any origin, as docs/security.md says.

    Args:
      text: what `graph_to_json` returned.
      allow: packages whose functions and frozen dataclasses it may name, beside this library's kernels and JAX's array
        functions. They are imported, and called while types are checked.
      make: `Graph`, which imports this module.

    Returns:
      The graph. Arguments in containers other than dict, list and tuple have become dicts by key path.

    Raises:
      FormatError: when the text is truncated, edited, or of another version, names what is not allowed or cannot be
        imported, or does not hold together.
      GraphError: when `allow` names no packages.
    """
    names = Readable.of(allow)
    with readable_errors():
        return _read(text, _Reader(names, make))


def _read(text: str, reader: _Reader) -> Graph:
    stored = _FILE.open(text)
    try:
        graph = reader.graph(stored, "graph", 0)
        with bounded_steps(len(text)):
            check_graph(graph)
        check_inputs(graph)
    except FormatError:
        raise
    except TapestryError as error:
        raise FormatError(message("the file says no graph.", str(error), remedy=REMEDY)) from error
    except RecursionError:
        raise FormatError(message("the file is nested too deeply to be read.", remedy=REMEDY)) from None
    return graph


def _unstorable(graph: Graph, problem: str, remedy: str = "Store its parts: graph.subgraph(path).") -> GraphError:
    return GraphError(message(f"`{shown(graph.name)}` cannot be stored.", problem, remedy=remedy))


# Writing


def _check_labels(graph: Graph, within: Graph) -> None:
    """Refuse names that the reader would refuse, those in loops too.

    Raises:
      GraphError: for the first of them.
    """
    labels = [graph.name, *graph.suggested, *(name for name, _ in (*graph.outputs, *graph.named))]
    for node in graph.nodes:
        labels.append(node.name if isinstance(node, Input) else node.path)
        if isinstance(node, Apply | Rename):
            labels += [name for pair in node.names for name in pair]
        if isinstance(node, Loop):
            _check_labels(node.body, within)
    longest = max(labels, key=len)
    if len(longest) > _LONGEST_LABEL:
        told = f"the name `{shown(longest)}` has {len(longest)} characters, names in files at most {_LONGEST_LABEL}"
        raise _unstorable(within, told, "Give it a shorter name.")


def _graph_to_json(graph: Graph, depth: int) -> dict[str, Any]:
    if depth > DEEPEST_LOOPS:
        raise _unstorable(graph, f"its loops are nested more than {DEEPEST_LOOPS} deep")
    table: dict[str, int] = {}
    operations: list[Any] = []
    nodes: list[Any] = []
    for node in graph.nodes:
        stored = _node_to_json(node, depth)
        if isinstance(node, Apply):
            operation = operation_to_json(node.operation)
            text = json.dumps(operation)
            if text not in table:
                table[text] = len(operations)
                operations.append(operation)
            stored["operation"] = table[text]
        nodes.append(stored)
    return {
        "name": graph.name,
        "operations": operations,
        "nodes": nodes,
        "outputs": _named_to_json(graph.outputs),
        "named": _named_to_json(graph.named),
        "in_tree": tree_to_json(graph.in_tree),
        "out_tree": tree_to_json(graph.out_tree),
        "suggested": sorted(graph.suggested),
    }


def _node_to_json(node: Node, depth: int) -> dict[str, Any]:
    types = [type_to_json(kind) for kind in node.results]
    if isinstance(node, Input):
        return {"kind": "input", "path": node.name, "types": types}
    common = {"path": node.path, "operands": [list(ref) for ref in node.operands], "types": types}
    match node:
        case Apply():
            return {"kind": "apply", **common, "names": [list(pair) for pair in node.names]}
        case Rename():
            return {"kind": "rename", **common, "names": [list(pair) for pair in node.names]}
        case Loop():
            own = {"length": node.length, "over": node.over, "carries": node.carries, "axes": list(node.axes)}
            if node.until:
                own["until"] = True
            return {"kind": "loop", **common, **own, "body": _graph_to_json(node.body, depth + 1)}


def type_to_json(kind: TensorType) -> dict[str, Any]:
    """Turn the type of a tensor into what the `json` module writes.

    Raises:
      GraphError: for axes that the reader would refuse.
    """
    longest = max(map(len, filter(None, kind.names)), default=0)
    if kind.ndim > _MOST_AXES or longest > _LONGEST_LABEL or max(kind.shape, default=0) >= _LARGEST_SIZE:
        told = f"it has {kind.ndim} axes, of {max(kind.shape)} cells and names of {longest} characters at most"
        bounds = f"a file holds {_MOST_AXES} axes, of less than {_LARGEST_SIZE} cells and {_LONGEST_LABEL} characters"
        remedy = "Give it fewer or smaller axes, or shorter names."
        raise GraphError(message("a type cannot be stored.", told, bounds, remedy=remedy))
    dims = [[name, size] for name, size in zip(kind.names, kind.shape, strict=True)]
    return {"dtype": encode(kind.dtype)["$dtype"], "dims": dims}


def _named_to_json(pairs: Sequence[tuple[str, Ref]]) -> list[Any]:
    return [[name, *ref] for name, ref in pairs]


# Reading


_GRAPH = ("name", "operations", "nodes", "outputs", "named", "in_tree", "out_tree")
# What files of this version did not have from the beginning, and what it is where they lack it.
_LATER: dict[str, Any] = {"suggested": []}
_LATER_IN_LOOPS: dict[str, Any] = {"until": False}
_KEYS = {
    "input": ("kind", "path", "types"),
    "apply": ("kind", "path", "types", "operands", "names", "operation"),
    "rename": ("kind", "path", "types", "operands", "names"),
    "loop": ("kind", "path", "types", "operands", "length", "over", "carries", "axes", "body"),
}


@final
@dataclass(frozen=True)
class _Reader:
    """Build graphs of what a file says; nothing is called but constructors of dataclasses."""

    names: Readable
    make: type[Graph]

    def graph(self, stored: Any, where: str, depth: int) -> Graph:
        """A graph, `depth` loops inside of the file's."""
        if depth > DEEPEST_LOOPS:
            raise malformed(where, f"at most {DEEPEST_LOOPS} loops inside each other", "one more")
        parts = entries(stored, _GRAPH, where, _LATER)
        name = _label(parts["name"], f"{where}, name")
        table = listed(parts["operations"], f"{where}, operations")
        operations = [
            operation_from_json(item, f"{where}, operation {number}", self.names) for number, item in enumerate(table)
        ]
        nodes = [
            self.node(item, operations, f"{where}, node {number}", depth)
            for number, item in enumerate(listed(parts["nodes"], f"{where}, nodes"))
        ]
        return self.make(
            tuple(nodes),
            _named_from_json(parts["outputs"], f"{where}, outputs"),
            _named_from_json(parts["named"], f"{where}, named"),
            tree_from_json(parts["in_tree"], f"{where}, in_tree"),
            tree_from_json(parts["out_tree"], f"{where}, out_tree"),
            name,
            frozenset(
                _label(item, f"{where}, suggested") for item in listed(parts["suggested"], f"{where}, suggested")
            ),
        )

    def node(self, stored: Any, operations: Sequence[Operation], where: str, depth: int) -> Node:
        """A node; `operations` is the table of its graph."""
        kind = cast("dict[str, Any]", stored).get("kind") if isinstance(stored, dict) else None
        if not isinstance(kind, str) or kind not in _KEYS:
            raise malformed(where, f"a node of kind {', '.join(_KEYS)}", stored)
        parts = entries(stored, _KEYS[kind], where, _LATER_IN_LOOPS if kind == "loop" else None)
        path = _label(parts["path"], f"{where}, path")
        where = f"{where} ({shown(path)})"
        kinds = enumerate(listed(parts["types"], f"{where}, types"))
        types = tuple(type_from_json(item, f"{where}, type {number}") for number, item in kinds)
        if kind == "input":
            if len(types) != 1:
                raise malformed(f"{where}, types", "one type", parts["types"])
            return Input(path, types)
        pairs = listed(parts["operands"], f"{where}, operands")
        operands = tuple(Ref(*_integers(pair, 2, f"{where}, operands")) for pair in pairs)
        if kind == "loop":
            return self.loop(parts, operands, types, path, where, depth)
        names = tuple(_name_pair(pair, f"{where}, names") for pair in listed(parts["names"], f"{where}, names"))
        if kind == "rename":
            return Rename(operands, names, types, path)
        number = integer(parts["operation"], f"{where}, operation")
        if number >= len(operations):
            raise malformed(f"{where}, operation", f"one of the {len(operations)} operations", number)
        return Apply(operations[number], operands, names, types, path)

    def loop(
        self,
        parts: dict[str, Any],
        operands: tuple[Ref, ...],
        types: tuple[TensorType, ...],
        path: str,
        where: str,
        depth: int,
    ) -> Loop:
        """A loop, whose body is a graph of its own."""
        over = parts["over"]
        return Loop(
            self.graph(parts["body"], f"{where}, body", depth + 1),
            integer(parts["length"], f"{where}, length"),
            None if over is None else _label(over, f"{where}, over"),
            operands,
            integer(parts["carries"], f"{where}, carries"),
            tuple(integer(axis, f"{where}, axes") for axis in listed(parts["axes"], f"{where}, axes")),
            types,
            path,
            boolean(parts["until"], f"{where}, until"),
        )


def type_from_json(stored: Any, where: str) -> TensorType:
    """Read the type of a tensor back.

    Raises:
      FormatError: when it is none.
    """
    parts = entries(stored, ("dtype", "dims"), where)
    dtype = decode({"$dtype": parts["dtype"]}, f"{where}, dtype")
    dims = [listed(pair, f"{where}, dims") for pair in listed(parts["dims"], f"{where}, dims")]
    if len(dims) > _MOST_AXES or not all(map(_is_dim, dims)):
        raise malformed(f"{where}, dims", f"at most {_MOST_AXES} pairs of a name and a size", parts["dims"])
    try:
        return TensorType([(pair[0], pair[1]) for pair in dims], dtype)
    except GraphError as error:
        raise FormatError(message(f"{where} is no type.", str(error)[:300], remedy=REMEDY)) from error


def _is_dim(pair: list[Any]) -> bool:
    return (
        len(pair) == 2
        and isinstance(pair[0], str | None)
        and len(pair[0] or "") <= _LONGEST_LABEL
        and type(pair[1]) is int
        and pair[1] < _LARGEST_SIZE
    )


def _named_from_json(stored: Any, where: str) -> tuple[tuple[str, Ref], ...]:
    pairs: list[tuple[str, Ref]] = []
    for number, item in enumerate(listed(stored, where)):
        name, *ref = listed(item, f"{where}[{number}]") or [None]
        pairs.append((_label(name, f"{where}[{number}]"), Ref(*_integers(ref, 2, f"{where}[{number}]"))))
    if len({name for name, _ in pairs}) < len(pairs):
        raise malformed(where, "names that differ", [name for name, _ in pairs])
    return tuple(pairs)


def _name_pair(stored: Any, where: str) -> tuple[str, str]:
    pair = listed(stored, where)
    if len(pair) != 2:
        raise malformed(where, "pairs of names", stored)
    return _label(pair[0], where), _label(pair[1], where)


def _label(stored: Any, where: str) -> str:
    label = text_of(stored, where)
    if len(label) > _LONGEST_LABEL:
        raise malformed(where, f"at most {_LONGEST_LABEL} characters", label)
    return label


def _integers(stored: Any, count: int, where: str) -> list[int]:
    found = listed(stored, where)
    if len(found) != count:
        raise malformed(where, f"{count} integers", stored)
    return [integer(item, where) for item in found]
