"""A part of a graph, for values that are known already: these become inputs, and what only they need is dropped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import jax

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Input, Node, Ref


@dataclass(frozen=True)
class Given:
    """A graph that goes on from values of another.

    Attributes:
      graph: its inputs are inputs of the other and values that were given, in the order of the other.
      entering: the value of the other that each input is.
      nodes: the node of the other that each of its nodes is.
    """

    graph: Graph
    entering: tuple[Ref, ...]
    nodes: tuple[int, ...]


def given(graph: Graph, known: Collection[Ref], outputs: Sequence[tuple[str, Ref]]) -> Given:
    """The part of a graph that makes some of its values, where others are known.

    Args:
      graph: any.
      known: values that need not be computed.
      outputs: name and value of what the part gives; its result is the tuple of them.
    """
    entering, inside = _reached(graph, known, outputs)
    order = sorted(inside)
    moved = {old: len(entering) + new for new, old in enumerate(order)}
    outside = {ref: number for number, ref in enumerate(entering)}

    def place(ref: Ref) -> Ref:
        return Ref(outside[ref], 0) if ref in outside else Ref(moved[ref.node], ref.output)

    taken = {node.name for node in graph.inputs}
    nodes: list[Node] = [_input(graph, ref, taken) for ref in entering]
    nodes += [replace(graph.nodes[old], operands=tuple(map(place, graph.nodes[old].operands))) for old in order]
    named = tuple((name, place(ref)) for name, ref in outputs)
    in_tree, out_tree = (jax.tree.structure((0,) * len(values)) for values in (entering, outputs))
    part = Graph(tuple(nodes), named, named, in_tree, out_tree, graph.name, graph.suggested)
    return Given(part, tuple(entering), (*(ref.node for ref in entering), *order))


def _reached(graph: Graph, known: Collection[Ref], outputs: Sequence[tuple[str, Ref]]) -> tuple[list[Ref], set[int]]:
    """What enters, in the order of the graph, and the nodes that run."""
    entering, inside, asked = set[Ref](), set[int](), [ref for _, ref in outputs]
    while asked:
        ref = asked.pop()
        if ref in known or isinstance(graph.nodes[ref.node], Input):
            entering.add(ref)
        elif ref.node not in inside:
            inside.add(ref.node)
            asked.extend(graph.nodes[ref.node].operands)
    return sorted(entering), inside


def _input(graph: Graph, ref: Ref, taken: set[str]) -> Input:
    node = graph.nodes[ref.node]
    if isinstance(node, Input):
        return node
    name = f"{node.path}/{ref.output}"
    while name in taken:
        name += "_"
    taken.add(name)
    return Input(name, (graph.type_of(ref),))
