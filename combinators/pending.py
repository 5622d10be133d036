"""Nodes of a recording: what a graph's nodes are before the names of their dimensions are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from combinators.binding import check_injective
from combinators.graph import Apply, Graph, Input, Loop, Node, Ref, Rename
from combinators.naming import AxisName, Resolver
from combinators.shaped import Shaped
from combinators.tensor_type import TensorType
from combinators.value import Value


class Body(Protocol):
    """The recording of a loop's body."""

    def resolved(
        self, outputs: Sequence[tuple[str, Value]], in_tree: Any, out_tree: Any, name: str, resolve: Resolver
    ) -> Graph:
        """Its graph."""
        ...

    def axes(self) -> Iterator[AxisName]:
        """The names of the dimensions in it."""
        ...


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


@dataclass(eq=False)
class PendingLoop:
    """A loop whose body is still a recording."""

    body: Body
    outputs: list[Value]
    length: int
    over: str | None
    carries: int
    axes: tuple[int, ...]


def resolved_node(pending: Pending, moved: Mapping[int, int], resolve: Resolver) -> Node:
    """Make the node of a graph, every name resolved; `moved` maps nodes of the recording to those of the graph."""
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
        body = loop.body.resolved(outputs, *trees, pending.path, resolve)
        return Loop(body, loop.length, loop.over, operands, loop.carries, loop.axes, results, pending.path)
    assert pending.shaped is not None and pending.bound is not None
    operation = pending.shaped.operation
    # Variables may have become one only after this operation was recorded.
    check_injective(pending.path, str(operation.signature), pending.bound)
    names = tuple((dim, resolve(name)) for dim, name in pending.bound.items())
    return Apply(operation, operands, names, results, pending.path)
