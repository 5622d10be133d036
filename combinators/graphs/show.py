"""Graphs for people: one line a node, or a Mermaid flow chart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.graphs.nodes import Apply, Input, Loop, Node, Rename
from combinators.index_space.axis import Axis
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph


def show(graph: Graph, format: str = "text") -> str:
    """Write a graph out for people.

    Args:
      graph: any graph.
      format: `text`, one line a node with its path, its operation by the names that it has here, and its results, equal
        scopes in a row folded to one; or `mermaid`, a flow chart for Markdown.

    Returns:
      Text without a newline at its end.

    Raises:
      GraphError: for another format.
    """
    if format == "text":
        return _text(graph)
    if format == "mermaid":
        return _mermaid(graph)
    raise GraphError(message(f"a graph cannot be shown as {format!r}", remedy='Choose the format "text" or "mermaid".'))


def bound_signature(node: Apply) -> str:
    """The signature of an applied operation with the names of its tensors in place of its own."""
    bound = node.bound

    def label(axis: Axis) -> Axis:
        return replace(axis, terms=tuple(replace(term, name=bound.get(term.name, term.name)) for term in axis.terms))

    def operand(item: Operand) -> Operand:
        at = item.coordinate
        return replace(item, axes=tuple(map(label, item.axes)), coordinate=None if at is None else bound.get(at, at))

    signature = node.operation.signature
    return str(Signature(tuple(map(operand, signature.operands)), tuple(map(operand, signature.results))))


def describe_node(node: Node) -> str:
    """What a node does, in a few words: its operation and the names that it works on."""
    match node:
        case Input():
            return "input"
        case Rename():
            return "rename " + ", ".join(f"{old} to {new}" for old, new in node.names)
        case Loop():
            most = "at most " * node.until
            return f"loop {most}{node.length} times" + (f" over {node.over}" if node.over is not None else "")
        case Apply():
            operation = node.operation
            words = [bound_signature(node)]
            if operation.monoid is not None:
                label = repr(operation.monoid)[len("Monoid(") : -1]
                along = operation.over or ", ".join(operation.signature.fold_dims)
                dims = ", ".join(node.bound.get(dim, dim) for dim in along.split(", ")) if along else "nothing"
                words.append(f"{'scan' if operation.kind == 'scan' else 'fold'} {dims} by {label}")
            if operation.boundary != "valid":
                words.append(f"boundary {operation.boundary}")
            return "; ".join(words)


# Text


@dataclass(frozen=True)
class Line:
    """One row of the table; `depth` counts the loops around it."""

    path: str
    what: str
    types: str
    depth: int = 0


def rows(graph: Graph) -> list[Line]:
    """What tables of a graph list: a line a node, equal scopes in a row once."""
    return _fold_scopes(list(_lines(graph, 0)))


def outputs_text(graph: Graph) -> str:
    """What is observed: `loss: y = mean`."""
    outputs = (
        f"{name} = {graph.nodes[ref.node].path}{_of(graph, ref.node, ref.output)}" for name, ref in graph.outputs
    )
    return f"{graph.name}: {', '.join(outputs)}"


def _text(graph: Graph) -> str:
    lines = rows(graph)
    paths = ["  " * line.depth + line.path for line in lines]
    left, middle = max(map(len, paths)), min(max(len(line.what) for line in lines), 72)
    table = [
        f"{path:{left}}  {line.what:{middle}}  {line.types}".rstrip() for path, line in zip(paths, lines, strict=True)
    ]
    return "\n".join([outputs_text(graph), *table])


def _of(graph: Graph, node: int, output: int) -> str:
    return f"[{output}]" if len(graph.nodes[node].results) > 1 else ""


def _lines(graph: Graph, depth: int) -> Iterator[Line]:
    for node in graph.nodes:
        yield Line(node.path, describe_node(node), ", ".join(map(str, node.results)), depth)
        if isinstance(node, Loop):
            yield from _lines(node.body, depth + 1)


_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<gap>[/_])(?P<number>\d+)")


def _fold_scopes(lines: list[Line]) -> list[Line]:
    """Show runs of equal numbered scopes (`decoder/0`, `decoder/1`; `block`, `block_1`) once, with their count."""
    for depth in range(1, 1 + max((line.path.count("/") for line in lines), default=0)):
        lines = _fold_level(lines, depth)
    return lines


def _fold_level(lines: list[Line], depth: int) -> list[Line]:
    groups: list[tuple[str, list[Line]]] = []
    for line in lines:
        scope = _scope(line.path, depth)
        if groups and scope and groups[-1][0] == scope and groups[-1][1][0].depth == line.depth:
            groups[-1][1].append(line)
        else:
            groups.append((scope, [line]))
    shown: list[Line] = []
    start = 0
    while start < len(groups):
        scope, first = groups[start]
        stop = start + 1
        while stop < len(groups) and scope and _is_next(groups[stop - 1][0], groups[stop][0]):
            if _content(groups[stop]) != _content((scope, first)):
                break
            stop += 1
        count = stop - start
        label = f"{scope}..{_last_label(scope, groups[stop - 1][0])} x{count}"
        shown += [replace(line, path=label + line.path[len(scope) :]) for line in first] if count > 1 else first
        start = stop
    return shown


def _scope(path: str, depth: int) -> str:
    """The first `depth` parts of a path that has more; empty where it has not."""
    parts = path.split("/")
    return "/".join(parts[:depth]) if len(parts) > depth else ""


def _content(group: tuple[str, list[Line]]) -> list[Line]:
    scope, lines = group
    return [replace(line, path=line.path[len(scope) :]) for line in lines]


def _is_next(before: str, after: str) -> bool:
    """Whether a scope is the numbered successor of another."""
    found = _NUMBERED.fullmatch(after)
    if found is None:
        return False
    number = int(found["number"])
    previous = f"{found['stem']}{found['gap']}{number - 1}"
    return before == previous or (number == 1 and found["gap"] == "_" and before == found["stem"])


def _last_label(first: str, last: str) -> str:
    """The end of a range of scopes: `11` after `decoder/0`, `block_2` after `block`."""
    parts = last.split("/")
    return parts[-1] if "/".join(parts[:-1]) == "/".join(first.split("/")[:-1]) else last


# Mermaid


def _mermaid(graph: Graph) -> str:
    lines = ["flowchart TD"]
    _chart(graph, "n", lines, "  ")
    for number, (name, ref) in enumerate(graph.outputs):
        lines.append(f'  out{number}(["{_escape(name)}"])')
        lines.append(f"  n{ref.node} --> out{number}")
    return "\n".join(lines)


def _chart(graph: Graph, prefix: str, lines: list[str], indent: str) -> None:
    for number, node in enumerate(graph.nodes):
        label = "<br/>".join(map(_escape, [node.path, describe_node(node), ", ".join(map(str, node.results))]))
        brackets = (
            ('(["', '"])') if isinstance(node, Input) else ('[["', '"]]') if isinstance(node, Loop) else ('["', '"]')
        )
        lines.append(f"{indent}{prefix}{number}{label.join(brackets)}")
        lines += [f"{indent}{prefix}{source} --> {prefix}{number}" for source in _sources(node)]
        if isinstance(node, Loop):
            inner = f"{prefix}{number}_"
            lines.append(f'{indent}subgraph {inner}body ["{_escape(node.path)}: each step"]')
            _chart(node.body, inner, lines, indent + "  ")
            lines.append(f"{indent}end")


def _sources(node: Node) -> Sequence[int]:
    return list(dict.fromkeys(ref.node for ref in node.operands))


def _escape(text: str) -> str:
    """Text for a quoted Mermaid label: whatever it could read as markup becomes an entity."""
    kept = set(" _-/.,:;=()+*@")
    return "".join(char if char.isalnum() or char in kept else f"#{ord(char)};" for char in text)
