"""Graphs as JSON text: versioned, with a checksum, and checked when read.

Equal operations stand once, in a table. Nothing is pickled: kernels are public names, which are imported when read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, cast

from combinators.errors import FormatError, GraphError, message
from combinators.graph import Apply, Graph, Input, Loop, Node, Ref, Rename
from combinators.graph_check import check_graph
from combinators.kernel_codec import decode, encode
from combinators.operation import Operation
from combinators.operation_json import operation_from_json, operation_to_json
from combinators.tensor_type import TensorType
from combinators.tree_json import tree_from_json, tree_to_json

FORMAT = "tapestry-graph"
VERSION = 1
_REMEDY = "Restore the file from what `to_json` wrote."


def graph_to_json(graph: Graph) -> str:
    """Store a graph as JSON text.

    Args:
      graph: every kernel in it has a public importable name.

    Returns:
      One line of JSON: format, version, checksum and content. `graph_from_json` reads it to a graph of equal `key`.

    Raises:
      KernelError: when a kernel, a monoid or an aggregator has no public name.
    """
    content = _graph_to_json(graph)
    return json.dumps({"format": FORMAT, "version": VERSION, "sha256": _checksum(content), "graph": content})


def graph_from_json(text: str) -> Graph:
    """Read a graph back.

    Args:
      text: what `graph_to_json` returned.

    Returns:
      The graph. Arguments in containers other than dict, list and tuple have become dicts by key path.

    Raises:
      FormatError: when the text is truncated, edited, or of another version, or names what cannot be imported.
    """
    head = _entries(_load(text), ("format", "version", "sha256", "graph"), "the file")
    if head["format"] != FORMAT or head["version"] != VERSION:
        raise FormatError(
            message(
                "the file is no graph of this version.",
                f"expected {FORMAT} {VERSION}",
                f"got {head['format']!r:.40} {head['version']!r:.40}",
                remedy="Read it with the release that wrote it, or trace the program again.",
            )
        )
    # A wrong place says more than a wrong checksum, so the content is looked through first.
    try:
        graph = _graph_from_json(head["graph"], "graph")
        check_graph(graph)
    except RecursionError:
        raise FormatError(message("the file is nested too deeply to be read.", remedy=_REMEDY)) from None
    if (found := _checksum(head["graph"])) != head["sha256"]:
        raise FormatError(
            message(
                "`graph` was edited: its checksum differs.",
                f"expected {head['sha256']!r:.80}",
                f"got      {found!r}",
                remedy=_REMEDY,
            )
        )
    return graph


def _checksum(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _load(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise FormatError(message("the file is nested too deeply to be read.", remedy=_REMEDY)) from None
    except (ValueError, TypeError) as error:
        place = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "the start"
        raise FormatError(
            message(f"the file is no JSON, from {place} on: truncated?", str(error)[:200], remedy=_REMEDY)
        ) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


# Writing


def _graph_to_json(graph: Graph) -> dict[str, Any]:
    table: dict[str, int] = {}
    operations: list[Any] = []
    nodes: list[Any] = []
    for node in graph.nodes:
        stored = _node_to_json(node)
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


def _node_to_json(node: Node) -> dict[str, Any]:
    types = [_type_to_json(kind) for kind in node.results]
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
            return {"kind": "loop", **common, **own, "body": _graph_to_json(node.body)}


def _type_to_json(kind: TensorType) -> dict[str, Any]:
    dims = [[name, size] for name, size in zip(kind.names, kind.shape, strict=True)]
    return {"dtype": encode(kind.dtype)["$dtype"], "dims": dims}


def _named_to_json(pairs: Sequence[tuple[str, Ref]]) -> list[Any]:
    return [[name, *ref] for name, ref in pairs]


# Reading


def _graph_from_json(stored: Any, where: str) -> Graph:
    keys = ("name", "operations", "nodes", "outputs", "named", "in_tree", "out_tree", "suggested")
    entries = _entries(stored, keys, where)
    table = _list(entries["operations"], f"{where}, operations")
    operations = [operation_from_json(item, f"{where}, operation {number}") for number, item in enumerate(table)]
    listed = _list(entries["nodes"], f"{where}, nodes")
    nodes = [_node_from_json(item, operations, f"{where}, node {number}") for number, item in enumerate(listed)]
    return Graph(
        tuple(nodes),
        _named_from_json(entries["outputs"], f"{where}, outputs"),
        _named_from_json(entries["named"], f"{where}, named"),
        tree_from_json(entries["in_tree"], f"{where}, in_tree"),
        tree_from_json(entries["out_tree"], f"{where}, out_tree"),
        _text(entries["name"], f"{where}, name"),
        frozenset(_text(name, f"{where}, suggested") for name in _list(entries["suggested"], f"{where}, suggested")),
    )


_KEYS = {
    "input": ("kind", "path", "types"),
    "apply": ("kind", "path", "types", "operands", "names", "operation"),
    "rename": ("kind", "path", "types", "operands", "names"),
    "loop": ("kind", "path", "types", "operands", "length", "over", "carries", "axes", "body"),
}


def _node_from_json(stored: Any, operations: Sequence[Operation], where: str) -> Node:
    kind = cast("dict[str, Any]", stored).get("kind") if isinstance(stored, dict) else None
    if not isinstance(kind, str) or kind not in _KEYS:
        raise _malformed(where, f"a node of kind {', '.join(_KEYS)}", stored)
    entries = _entries(stored, _KEYS[kind], where)
    path = _text(entries["path"], f"{where}, path")
    where = f"{where} ({path})"
    listed = _list(entries["types"], f"{where}, types")
    types = tuple(_type_from_json(item, f"{where}, type {number}") for number, item in enumerate(listed))
    if kind == "input":
        if len(types) != 1:
            raise _malformed(f"{where}, types", "one type", entries["types"])
        return Input(path, types)
    pairs = _list(entries["operands"], f"{where}, operands")
    operands = tuple(Ref(*_integers(pair, 2, f"{where}, operands")) for pair in pairs)
    if kind == "loop":
        over = entries["over"]
        return Loop(
            _graph_from_json(entries["body"], f"{where}, body"),
            _integer(entries["length"], f"{where}, length"),
            None if over is None else _text(over, f"{where}, over"),
            operands,
            _integer(entries["carries"], f"{where}, carries"),
            tuple(_integer(axis, f"{where}, axes") for axis in _list(entries["axes"], f"{where}, axes")),
            types,
            path,
        )
    names = tuple(_name_pair(pair, f"{where}, names") for pair in _list(entries["names"], f"{where}, names"))
    if kind == "rename":
        return Rename(operands, names, types, path)
    number = _integer(entries["operation"], f"{where}, operation")
    if number >= len(operations):
        raise _malformed(f"{where}, operation", f"one of the {len(operations)} operations", number)
    return Apply(operations[number], operands, names, types, path)


def _type_from_json(stored: Any, where: str) -> TensorType:
    entries = _entries(stored, ("dtype", "dims"), where)
    dtype = decode({"$dtype": entries["dtype"]}, f"{where}, dtype")
    dims = [_list(pair, f"{where}, dims") for pair in _list(entries["dims"], f"{where}, dims")]
    if not all(len(pair) == 2 and isinstance(pair[0], str | None) and type(pair[1]) is int for pair in dims):
        raise _malformed(f"{where}, dims", "pairs of a name and a size", entries["dims"])
    try:
        return TensorType([(pair[0], pair[1]) for pair in dims], dtype)
    except GraphError as error:
        raise FormatError(message(f"{where} is no type.", str(error), remedy=_REMEDY)) from error


def _named_from_json(stored: Any, where: str) -> tuple[tuple[str, Ref], ...]:
    pairs: list[tuple[str, Ref]] = []
    for number, item in enumerate(_list(stored, where)):
        name, *ref = _list(item, f"{where}[{number}]") or [None]
        pairs.append((_text(name, f"{where}[{number}]"), Ref(*_integers(ref, 2, f"{where}[{number}]"))))
    return tuple(pairs)


def _name_pair(stored: Any, where: str) -> tuple[str, str]:
    pair = _list(stored, where)
    if len(pair) != 2:
        raise _malformed(where, "pairs of names", stored)
    return _text(pair[0], where), _text(pair[1], where)


def _entries(stored: Any, keys: Sequence[str], where: str) -> dict[str, Any]:
    entries = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
    if entries.keys() != set(keys):
        raise _malformed(where, f"an object of {', '.join(keys)}", sorted(entries) if entries else stored)
    return entries


def _list(stored: Any, where: str) -> list[Any]:
    if not isinstance(stored, list):
        raise _malformed(where, "a list", stored)
    return cast("list[Any]", stored)


def _text(stored: Any, where: str) -> str:
    if not isinstance(stored, str):
        raise _malformed(where, "a text", stored)
    return stored


def _integer(stored: Any, where: str) -> int:
    if type(stored) is not int or stored < 0:
        raise _malformed(where, "a non-negative integer", stored)
    return stored


def _integers(stored: Any, count: int, where: str) -> list[int]:
    listed = _list(stored, where)
    if len(listed) != count:
        raise _malformed(where, f"{count} integers", stored)
    return [_integer(item, where) for item in listed]


def _malformed(where: str, expected: str, got: object) -> FormatError:
    return FormatError(message(f"{where} cannot be read.", f"expected {expected}", f"got {got!r:.120}", remedy=_REMEDY))
