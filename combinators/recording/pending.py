"""Nodes of a recording: what a graph's nodes are before the names of their dimensions are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from combinators.errors import GraphError, message
from combinators.graphs.graph import Graph, prune
from combinators.graphs.nodes import Apply, Input, Loop, Node, Ref, Rename
from combinators.index_space.naming import AxisName, Resolver
from combinators.index_space.tensor_type import TensorType
from combinators.operations.binding import check_injective
from combinators.operations.shaped import Shaped
from combinators.recording.value import Value


@dataclass(eq=False)
class Pending:
    """A node whose names may still be variables."""

    kind: str
    operands: tuple[Ref, ...]
    results: list[Value]
    path: str
    shaped: Shaped | None = None
    bound: dict[str, AxisName] | None = None
    renamed: dict[str, str] | None = None
    loop: PendingLoop | None = None
    written: Any = None


@dataclass(eq=False)
class PendingLoop:
    """A loop whose body is still a recording."""

    nodes: Sequence[Pending]
    named: Mapping[str, Value]
    outputs: list[Value]
    length: int
    over: str | None
    carries: int
    axes: tuple[int, ...]
    until: bool = False


def axes_of(nodes: Sequence[Pending]) -> Iterator[AxisName]:
    """All names of dimensions, known or not, those in loops too, in the order in which they appeared."""
    for pending in nodes:
        for value in pending.results:
            yield from value.axes
        yield from (pending.bound or {}).values()
        if pending.loop is not None:
            yield from axes_of(pending.loop.nodes)


def together(nodes: Sequence[Pending]) -> Iterator[tuple[AxisName, ...]]:
    """The names that stand side by side: those of a tensor, and those of an operation."""
    for pending in nodes:
        yield from (tuple(value.axes) for value in pending.results)
        if pending.bound is not None:
            yield tuple(pending.bound.values())
        if pending.loop is not None:
            yield from together(pending.loop.nodes)


def resolved_graph(
    nodes: Sequence[Pending],
    named: Mapping[str, Value],
    outputs: Sequence[tuple[str, Value]],
    in_tree: Any,
    out_tree: Any,
    name: str,
    resolve: Resolver,
) -> Graph:
    """The graph of a recording, without what nobody can observe.

    Args:
      nodes: of the recording, in order.
      named: the values that were named.
      outputs: label and value of what is returned.
      in_tree: how the inputs make the arguments.
      out_tree: how the outputs make the result.
      name: of the program.
      resolve: gives names to variables.

    Raises:
      GraphError: when an output is named as another value.
    """
    inputs = [i for i, pending in enumerate(nodes) if pending.kind == "input"]
    others = [i for i, pending in enumerate(nodes) if pending.kind != "input"]
    moved = {old: new for new, old in enumerate([*inputs, *others])}
    resolved = tuple(_resolved_node(nodes[old], moved, resolve) for old in moved)
    observed = tuple((label, Ref(moved[value.ref.node], value.ref.output)) for label, value in outputs)
    observable = [(label, Ref(moved[v.ref.node], v.ref.output)) for label, v in named.items()]
    labels = dict(observed)
    for label, ref in observable:
        if labels.get(label, ref) != ref:
            raise GraphError(
                message(
                    f"`{name}` names a value {label!r}, which is what its output is called",
                    f"the outputs are {', '.join(labels)}",
                    remedy="Give the value another name with tp.named.",
                )
            )
    everything = observed + tuple(pair for pair in observable if pair[0] not in labels)
    return prune(Graph(resolved, observed, everything, in_tree, out_tree, name, resolve.suggested))


def _resolved_node(pending: Pending, moved: Mapping[int, int], resolve: Resolver) -> Node:
    """The node of a graph, every name resolved; `moved` maps nodes of the recording to those of the graph."""
    operands = tuple(Ref(moved[ref.node], ref.output) for ref in pending.operands)
    results = tuple(TensorType.make(map(resolve, v.axes), v.shape, v.dtype) for v in pending.results)
    if pending.kind == "input":
        return Input(pending.path, results)
    if pending.renamed is not None:
        return Rename(operands, tuple(sorted(pending.renamed.items())), results, pending.path)
    if pending.loop is not None:
        loop = pending.loop
        outputs = [(f"y/{i}", value) for i, value in enumerate(loop.outputs)]
        trees = jax.tree.structure((0,) * len(operands)), jax.tree.structure((0,) * len(outputs))
        body = resolved_graph(loop.nodes, loop.named, outputs, *trees, pending.path, resolve)
        wiring = operands, loop.carries, loop.axes, results
        return Loop(body, loop.length, loop.over, *wiring, pending.path, loop.until)
    assert pending.shaped is not None and pending.bound is not None
    operation = pending.shaped.operation
    # Variables may have become one only after this operation was recorded.
    check_injective(pending.path, str(operation.signature), pending.bound)
    names = tuple((dim, resolve(name)) for dim, name in pending.bound.items())
    return Apply(operation, operands, names, results, pending.path, pending.written)
