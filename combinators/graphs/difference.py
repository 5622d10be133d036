"""The first operation in which two graphs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combinators.graphs.nodes import Apply, Input, Loop, Node, Rename, needed_nodes

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph


def first_difference(found: Graph, other: Graph, called: tuple[str, str]) -> list[str]:
    """Why two graphs have different keys: what differs first, then lines that show it.

    Args:
      found: one graph.
      other: another one, with another key.
      called: what the lines call them.
    """
    return _difference(found, other, called) or ["the wiring of the outputs differs"]


def counted_nodes(graph: Graph) -> list[int]:
    """The nodes that a key counts: inputs, and what the outputs need."""
    needed = needed_nodes(graph)
    return [index for index, node in enumerate(graph.nodes) if index in needed or isinstance(node, Input)]


def _difference(found: Graph, other: Graph, called: tuple[str, str]) -> list[str] | None:
    left, right = counted_nodes(found), counted_nodes(other)
    for one, two in zip(left, right, strict=False):
        mine, theirs = found.nodes[one], other.nodes[two]
        told = _of_nodes(mine, theirs, called)
        wires = [
            [_name(each, ref.node, ref.output) for ref in node.operands]
            for each, node in ((found, mine), (other, theirs))
        ]
        if told is None and wires[0] != wires[1]:
            told = ["reads other tensors", f"in {called[0]} {wires[0]}", f"in {called[1]} {wires[1]}"]
        told = told or _of_labels(mine, theirs)
        if told is not None:
            return [f"`{theirs.path}` {told[0]}", *told[1:]]
        if isinstance(mine, Loop) and isinstance(theirs, Loop) and mine.body.key != theirs.body.key:
            return _difference(mine.body, theirs.body, called) or [f"`{theirs.path}` has another body"]
    if len(left) != len(right):
        more = (found, left) if len(left) > len(right) else (other, right)
        node = more[0].nodes[more[1][min(len(left), len(right))]]
        return [f"`{node.path}` is {'made up' if len(left) > len(right) else 'left out'}"]
    return None


def _of_nodes(mine: Node, theirs: Node, called: tuple[str, str]) -> list[str] | None:
    """In which way two nodes are not the same operation."""
    if type(mine) is not type(theirs):
        return ["is of another kind", f"{type(mine).__name__}, expected {type(theirs).__name__}"]
    if [each.struct for each in mine.results] != [each.struct for each in theirs.results]:
        kinds = [f"{', '.join(map(str, each.results))}" for each in (mine, theirs)]
        return ["has another type", f"in {called[0]} {kinds[0]}", f"in {called[1]} {kinds[1]}"]
    if isinstance(mine, Apply) and isinstance(theirs, Apply) and _differ(mine, theirs):
        return ["is another operation", f"in {called[0]} {mine.operation}", f"in {called[1]} {theirs.operation}"]
    return None


def _differ(mine: Apply, theirs: Apply) -> bool:
    return mine.operation.fingerprint != theirs.operation.fingerprint


def _of_labels(mine: Node, theirs: Node) -> list[str] | None:
    """In which way two nodes, that read the same, call it otherwise; loops: turn otherwise."""
    if isinstance(mine, Rename) and isinstance(theirs, Rename) and mine.names != theirs.names:
        return ["renames otherwise", f"{mine.names}, expected {theirs.names}"]
    if isinstance(mine, Apply) and isinstance(theirs, Apply) and dict(mine.names) != dict(theirs.names):
        return ["binds its dimensions to other names", f"{mine.names}, expected {theirs.names}"]
    if isinstance(mine, Loop) and isinstance(theirs, Loop) and mine.length != theirs.length:
        return ["turns another number of times", f"{mine.length}, expected {theirs.length}"]
    if isinstance(mine, Loop) and isinstance(theirs, Loop) and mine.until != theirs.until:
        ends = ["by a condition" if node.until else "after all turns" for node in (mine, theirs)]
        return ["ends otherwise", f"{ends[0]}, expected {ends[1]}"]
    return None


def _name(graph: Graph, node: int, output: int) -> str:
    place = counted_nodes(graph).index(node)
    return f"{graph.nodes[node].path}#{place}.{output}"
