"""Checking a graph that was read and not traced: references, and types derived anew from the operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from combinators.errors import FormatError, TapestryError, message
from combinators.graphs.nodes import MOST_TURNS, Apply, Input, Loop, Ref, Rename
from combinators.index_space.naming import find
from combinators.index_space.tensor_type import TensorType
from combinators.operations.binding import bind
from combinators.operations.ready import check_dense
from combinators.operations.shaped import shape
from combinators.stored.json import REMEDY, shown

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph


def check_graph(graph: Graph, where: str = "graph") -> None:
    """Check that a graph is one: what tracing guarantees of those that it makes.

    Args:
      graph: of any origin.
      where: the place in the file, as an error names it.

    Raises:
      FormatError: for a reference out of range or out of order, a type that its operation does not give, a name that
        its operands do not carry, or outputs that do not fit their structure.
    """
    for index, node in enumerate(graph.nodes):
        place = f"{where}, node {index} ({shown(node.path)})"
        if isinstance(node, Input):
            _require(index < len(graph.inputs), place, "an input stands behind operations")
            continue
        for ref in node.operands:
            _check_ref(graph, ref, index, place)
        operands = [graph.type_of(ref) for ref in node.operands]
        match node:
            case Apply():
                _check_apply(node, operands, place)
            case Rename():
                _check_rename(node, operands, place)
            case Loop():
                _check_loop(node, operands, place)
    for label, ref in (*graph.outputs, *graph.named):
        _check_ref(graph, ref, len(graph.nodes), f"{where}, output {label!r}")
    _check_count(graph.in_tree.num_leaves, len(graph.inputs), f"{where}, in_tree", "inputs")
    _check_count(graph.out_tree.num_leaves, len(graph.outputs), f"{where}, out_tree", "outputs")
    _require(bool(graph.outputs), where, "it has no output")


def check_inputs(graph: Graph, where: str = "graph") -> None:
    """Check that no two inputs of a program have one path, which plans place them by: tracing keeps them apart.

    Raises:
      FormatError: with the first path that stands twice.
    """
    seen: set[str] = set()
    for node in graph.inputs:
        _require(node.path not in seen, where, f"two inputs have the path {shown(node.path)}")
        seen.add(node.path)


def _check_ref(graph: Graph, ref: Ref, before: int, place: str) -> None:
    _require(0 <= ref.node < before, place, f"it refers to node {ref.node}, and {before} nodes stand before it")
    count = len(graph.nodes[ref.node].results)
    _require(0 <= ref.output < count, place, f"it refers to output {ref.output} of node {ref.node}, which has {count}")


def _check_apply(node: Apply, operands: Sequence[TensorType], place: str) -> None:
    structs = tuple(kind.struct for kind in operands)
    try:
        shaped = shape(node.operation, structs)
        check_dense(node.operation, structs)
        bound, names = bind(shaped, [kind.names for kind in operands])  # pyright: ignore[reportArgumentType]
    except (Exception, SystemExit) as error:  # what a file makes of kernels may raise anything while it is traced
        told = str(error) if isinstance(error, TapestryError) else f"{type(error).__name__}: {error}"
        raise FormatError(message(f"{place}: its operation does not fit its operands.", told, remedy=REMEDY)) from error
    _require(shaped.operation == node.operation, place, "its signature is not expanded for the rank of its operands")
    expected = tuple((dim, find(name)) for dim, name in bound.items())
    _require(node.names == expected, place, f"it binds {dict(node.names)}, its operands {dict(expected)}")
    _require(len(shaped.results) == len(node.results), place, f"its operation gives {len(shaped.results)} results")
    for number, (axes, struct, kind) in enumerate(zip(names, shaped.results, node.results, strict=True)):
        _require(len(axes) == kind.ndim, place, f"result {number} is {kind}, and should have {len(axes)} axes")
        # An axis that the operation leaves without a name may have got any.
        labels = [
            name if isinstance(name := find(axis), str) else own for axis, own in zip(axes, kind.names, strict=True)
        ]
        _check_type(place, f"result {number}", TensorType.make(labels, struct.shape, struct.dtype), kind)


def _check_rename(node: Rename, operands: Sequence[TensorType], place: str) -> None:
    _require(len(operands) == 1 and len(node.results) == 1, place, "it does not rename one value")
    source, mapping = operands[0], dict(node.names)
    _require(mapping.keys() <= set(source.names), place, f"it renames {sorted(mapping)}, its operand is {source}")
    names = [mapping.get(name, name) if name is not None else None for name in source.names]
    _check_type(place, "its result", TensorType.make(names, source.shape, source.dtype), node.results[0])


def _check_loop(node: Loop, operands: Sequence[TensorType], place: str) -> None:
    carries, stacked = node.carries, len(node.axes)
    _require(carries >= 0 and carries + stacked <= len(operands), place, "it has fewer operands than it names")
    _require(0 <= node.length <= MOST_TURNS, place, f"its length is {node.length}, and may be {MOST_TURNS} at most")
    if node.until:
        _require(carries and not stacked and len(node.results) == carries, place, "it ends by a carry, and has slices")
        flag = (operands[0].shape, operands[0].dtype)
        _require(flag == ((), np.dtype(np.bool_)), place, f"it ends by carry 0, which is {operands[0]}")
    check_graph(node.body, f"{place}, body")
    slices = [
        _without(kind, axis, node, place)
        for kind, axis in zip(operands[carries : carries + stacked], node.axes, strict=True)
    ]
    expected = [*operands[:carries], *slices, *operands[carries + stacked :]]
    inputs = [kind.results[0] for kind in node.body.inputs]
    _require(len(inputs) == len(expected), place, f"its body takes {len(inputs)} values, it has {len(expected)}")
    for number, (want, got) in enumerate(zip(expected, inputs, strict=True)):
        _check_type(place, f"input {number} of its body", want, got)
    outputs = [node.body.type_of(ref) for _, ref in node.body.outputs]
    _require(len(outputs) == len(node.results), place, f"its body gives {len(outputs)} values")
    for number, (inner, got) in enumerate(zip(outputs, node.results, strict=True)):
        want = operands[number] if number < carries else _with(inner, node)
        _check_type(place, f"result {number}", want, got)
        if number < carries:
            _check_type(place, f"carry {number} of its body", want, inner)


def _without(kind: TensorType, axis: int, node: Loop, place: str) -> TensorType:
    fits = 0 <= axis < kind.ndim and kind.names[axis] == node.over and kind.shape[axis] == node.length
    _require(fits, place, f"axis {axis} of {kind} does not hold {node.length} slices along {node.over!r}")
    names, sizes = list(kind.names), list(kind.shape)
    del names[axis], sizes[axis]
    return TensorType.make(names, sizes, kind.dtype)


def _with(kind: TensorType, node: Loop) -> TensorType:
    return TensorType.make((node.over, *kind.names), (node.length, *kind.shape), kind.dtype)


def _check_type(place: str, what: str, expected: TensorType, got: TensorType) -> None:
    _require(expected == got, place, f"{what} is {got}, and should be {expected}")


def _check_count(expected: int, got: int, place: str, what: str) -> None:
    _require(expected == got, place, f"it holds {expected} {what}, the graph has {got}")


def _require(fits: Any, place: str, problem: str) -> None:
    if not fits:
        raise FormatError(message(f"{place}: the graph does not hold together.", problem, remedy=REMEDY))
