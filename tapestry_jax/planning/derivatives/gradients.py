"""Which values and which gradients flow through an operation: what tells which collectives remain."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import jax

from combinators.graphs.graph import Graph
from combinators.index_space.axis import Axis
from combinators.index_space.signature import Signature
from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.jaxprs import as_function
from combinators.operations.execute import combine, present, states
from combinators.operations.operation import Operation
from combinators.operations.ready import plain, run_whole
from combinators.operations.shaped import Shaped, block_structs, shape
from combinators.settings import remembered
from tapestry_jax.planning.derivatives.dependence import Matrix, dependence, dependence_in, traced

Struct = jax.ShapeDtypeStruct
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def value_dependence(graph: Graph, node: int) -> Matrix:
    """For each result and operand of an operation, whether the one depends on the other."""
    return _known(graph, node, "values", _value_dependence)


def state_dependence(graph: Graph, node: int, sizes: Mapping[str, int]) -> Matrix:
    """For each leaf of a block's state and each operand of a fold or scan, whether the one depends on the other.

    Args:
      graph: the program.
      node: of the operation.
      sizes: of the block: of one row, say, no leaf says how far its rows are apart.
    """
    return _known(graph, node, "states", _state_dependence, telling_sizes(graph.shaped(node), sizes))


def derivative_dependence(graph: Graph, node: int) -> Matrix:
    """For each result and operand of an operation, whether the derivative can differ from 0."""
    return _known(graph, node, "derivatives", _derivative_dependence)


def state_derivative_dependence(graph: Graph, node: int, sizes: Mapping[str, int]) -> Matrix:
    """For each leaf of a block's state and each operand, whether the derivative can differ from 0.

    Args:
      graph: the program.
      node: of a fold or scan.
      sizes: of the block.
    """
    told = telling_sizes(graph.shaped(node), sizes)
    return _known(graph, node, "state derivatives", _state_derivative_dependence, told)


def derivative_needs(graph: Graph, node: int, direction: int, value: int) -> bool:
    """Whether the derivative of an operation by one operand is computed from the value of an operand."""
    return _known(graph, node, "needs", _derivative_needs, direction)[value]


def derivative_coordinates(graph: Graph, node: int, direction: int, sizes: Mapping[str, int]) -> frozenset[str]:
    """The dimensions whose coordinates the derivative of a block by one operand is computed from.

    Args:
      graph: the program.
      node: of an operation.
      direction: the place of the operand.
      sizes: of the block.
    """
    if all(operand.coordinate is None for operand in graph.shaped(node).signature.operands):
        return frozenset()
    told = telling_sizes(graph.shaped(node), sizes, folded=True)
    return _known(graph, node, "coordinates", _derivative_coordinates, direction, told)


def known_by(graph: Graph, node: int, policy: Any) -> bool:
    """Whether all that an operation gives is computed from values that a policy keeps, and these from its operands.

    Args:
      graph: the program.
      node: of the operation.
      policy: one of `jax.checkpoint_policies` that goes by primitives, hashable.
    """
    return _known(graph, node, "kept", _known_by, policy)


def presents_linearly(graph: Graph, node: int) -> bool:
    """Whether no derivative of a fold's result by its merged state is computed from the state's value."""
    return _known(graph, node, "linear", _presents_linearly)


def merged_leaves(graph: Graph, node: int, leaves: Collection[int]) -> frozenset[int]:
    """The leaves of a merged state that depend on some leaves of the states: a recurrence's sum on its decay, too.

    Args:
      graph: the program.
      node: of a fold or scan.
      leaves: their numbers.
    """
    matrix, found = _known(graph, node, "merged", _merge_dependence), frozenset(leaves)
    while True:
        more = found | {leaf for leaf, row in enumerate(matrix) if any(row[other] for other in found)}
        if more == found:
            return found
        found = more


def maybe_unread(graph: Graph, node: int) -> frozenset[int]:
    """The operands of an operation of which its kernel may read no cell, since a boundary answers for all it reads.

    An axis may be so short that some cell of a window lies outside in every place. Which cells of a window a kernel
    reads is not asked: XLA finds it for some kernels and not for others.
    """
    shaped = graph.shaped(node)
    if shaped.operation.boundary == "valid":
        return frozenset()
    types = (graph.type_of(ref) for ref in graph.nodes[node].operands)
    arrays = (operand for operand in shaped.signature.operands if operand.coordinate is None)
    return frozenset(
        place
        for place, (operand, of) in enumerate(zip(arrays, types, strict=True))
        for axis, cells in zip(operand.axes, of.shape, strict=True)
        if axis.is_window and _passes_by(shaped.signature, axis, shaped.sizes, cells)
    )


def values_read(
    graph: Graph, node: int, *, surely: bool, smooth: bool = False, alone: bool = False
) -> Sequence[Sequence[bool]]:
    """For each result and operand of an operation, whether the one depends on the other.

    Args:
      graph: the program.
      node: of the operation.
      surely: take what windows may leave unread to be unread, see `maybe_unread`.
      smooth: with a derivative.
      alone: take the place of something that is found among one cell to be known.
    """
    matrix = (derivative_dependence if smooth else value_dependence)(graph, node)
    if alone and any(1 in graph.type_of(ref).shape for ref in graph.nodes[node].operands):
        matrix = _known(graph, node, "values alone", _value_dependence, True)
    if not surely:
        return matrix
    unread = maybe_unread(graph, node)
    return [[depends and place not in unread for place, depends in enumerate(row)] for row in matrix]


def _passes_by(signature: Signature, axis: Axis, sizes: dict[str, int], cells: int) -> bool:
    """Whether the first or the last cell of a window lies outside of `cells` cells in every place of the window."""
    inner = [t for t in axis.terms if signature.role(t.name) != "map"]
    outer = [t for t in axis.terms if signature.role(t.name) == "map"]
    reach = [t.coefficient * (sizes[t.name] - 1) for t in inner]
    places = [t.coefficient * (sizes[t.name] - 1) for t in outer]
    low, high = axis.offset + sum(min(0, each) for each in places), axis.offset + sum(max(0, each) for each in places)
    first, last = sum(min(0, each) for each in reach), sum(max(0, each) for each in reach)
    return any(high + cell < 0 or low + cell >= cells for cell in (first, last))


def _known(graph: Graph, node: int, what: str, find: Callable[..., Any], *more: Hashable) -> Any:
    """What is found out about an operation at its sizes, and kept with it: schedules ask for it step by step."""
    shaped = graph.shaped(node)
    key = (what, *more)
    if key not in shaped.known:
        structs = tuple(graph.type_of(ref).struct for ref in graph.nodes[node].operands)
        shaped.known[key] = find(shaped.operation, structs, *more)
    return shaped.known[key]


@remembered(maxsize=4096)
def _value_dependence(operation: Operation, structs: tuple[Struct, ...], alone: bool = False) -> Matrix:
    return dependence_in(_whole(operation, structs).jaxpr, alone=alone)


@remembered(maxsize=1024)
def _whole(operation: Operation, structs: tuple[Struct, ...]) -> Any:
    """The closed jaxpr of an operation on whole arrays, by its own kernel: derivatives are taken of it.

    The kernel is called once for all that is asked of it, and its derivatives run what it was found to do.
    """
    shaped = plain(shape(operation, structs))
    return traced(lambda arrays: run_whole(shaped, arrays), structs)


@remembered(maxsize=4096)
def _state_dependence(operation: Operation, structs: tuple[Struct, ...], sizes: tuple[tuple[str, int], ...]) -> Matrix:
    operands = shape(operation, structs).signature.operands
    arrays = [place for place, operand in enumerate(operands) if operand.coordinate is None]
    rows = dependence_in(traced_states(operation, structs, sizes).jaxpr, alone=True)
    return tuple(tuple(row[place] for place in arrays) for row in rows)


def telling_sizes(shaped: Shaped, sizes: Mapping[str, int], *, folded: bool = False) -> tuple[tuple[str, int], ...]:
    """The sizes of a block that says the same: each cell of what is mapped is computed as it is among all of them.

    So kernels are traced once for the blocks into which a plan may cut what they map over. One cell is another matter,
    since whatever is found along it is known; and so are windows, and what is folded or scanned.

    Args:
      shaped: an operation.
      sizes: of a block.
      folded: whether what is folded may stand for its parts as well. Not of what a state depends on: that of all rows
        may be known where that of some is not.
    """
    signature = shaped.signature
    tensors = (*signature.operands, *signature.results)
    cells = {*signature.map_dims, *(signature.fold_dims if folded else ())}
    alike = {axis.name for tensor in tensors for axis in tensor.axes if axis.is_bare} & cells
    alike -= {name for tensor in tensors for axis in tensor.axes if not axis.is_bare for name in axis.names}
    alike.discard(shaped.operation.over)
    return tuple(sorted((dim, shaped.sizes[dim] if dim in alike and size > 1 else size) for dim, size in sizes.items()))


@remembered(maxsize=1024)
def traced_states(operation: Operation, structs: tuple[Struct, ...], sizes: tuple[tuple[str, int], ...]) -> Any:
    """The closed jaxpr from the operands of a block of these sizes, coordinates too, to the leaves of its state."""
    shaped = plain(shape(operation, structs))
    return traced(lambda leaves: states(shaped, leaves), block_structs(shaped.signature, structs, dict(sizes)))


@remembered(maxsize=4096)
def _merge_dependence(operation: Operation, structs: tuple[Struct, ...]) -> Matrix:
    shaped = plain(shape(operation, structs))
    states = (shaped.state, shaped.state)
    rows = dependence(lambda left, right: combine(shaped, shaped.carrier, left, right), *states)
    count = len(shaped.state)
    return tuple(tuple(row[leaf] or row[count + leaf] for leaf in range(count)) for row in rows)


@remembered(maxsize=4096)
def _derivative_dependence(operation: Operation, structs: tuple[Struct, ...]) -> Matrix:
    return _by_derivative(_whole(operation, structs), structs, shape(operation, structs).results)


@remembered(maxsize=4096)
def _state_derivative_dependence(
    operation: Operation, structs: tuple[Struct, ...], sizes: tuple[tuple[str, int], ...]
) -> Matrix:
    shaped = plain(shape(operation, structs))
    blocks = block_structs(shaped.signature, structs, dict(sizes))
    arrays = [place for place, operand in enumerate(shaped.signature.operands) if operand.coordinate is None]
    rows = _by_derivative(traced_states(operation, structs, sizes), blocks, shaped.state)
    return tuple(tuple(row[place] for place in arrays) for row in rows)


def _by_derivative(program: Any, structs: Sequence[Struct], outputs: Sequence[Struct]) -> Matrix:
    """For each of some `outputs` of a program of arrays, and each array, whether the derivative can differ from 0."""
    function = as_function(program)
    smooth = [i for i, struct in enumerate(structs) if is_inexact(struct.dtype)]
    results = [j for j, result in enumerate(outputs) if is_inexact(result.dtype)]
    rows = [[False] * len(structs) for _ in outputs]
    if smooth and results:

        def tangents(directions: list[Any], primals: list[Any]) -> list[Any]:
            def run(*chosen: Any) -> list[Any]:
                arrays = list(primals)
                for position, value in zip(smooth, chosen, strict=True):
                    arrays[position] = value
                found = function(*arrays)
                return [found[j] for j in results]

            return jax.jvp(run, [primals[i] for i in smooth], directions)[1]

        matrix = dependence(tangents, [structs[i] for i in smooth], structs)
        for j, row in zip(results, matrix, strict=True):
            for i, depends in zip(smooth, row, strict=False):
                rows[j][i] = depends
    return tuple(map(tuple, rows))


@remembered(maxsize=4096)
def _derivative_needs(operation: Operation, structs: tuple[Struct, ...], direction: int) -> tuple[bool, ...]:
    function = as_function(_whole(operation, structs))
    results = [j for j, result in enumerate(shape(operation, structs).results) if is_inexact(result.dtype)]

    def tangents(directions: list[Any], primals: list[Any]) -> list[Any]:
        def run(chosen: Any) -> list[Any]:
            outputs = function(*primals[:direction], chosen, *primals[direction + 1 :])
            return [outputs[j] for j in results]

        return jax.jvp(run, [primals[direction]], directions)[1]

    matrix = dependence(tangents, [structs[direction]], structs)
    return tuple(any(row[place + 1] for row in matrix) for place in range(len(structs)))


@remembered(maxsize=4096)
def _derivative_coordinates(
    operation: Operation, structs: tuple[Struct, ...], direction: int, sizes: tuple[tuple[str, int], ...]
) -> frozenset[str]:
    shaped = plain(shape(operation, structs))
    operands, blocks = shaped.signature.operands, block_structs(shaped.signature, structs, dict(sizes))
    place = [number for number, operand in enumerate(operands) if operand.coordinate is None][direction]
    if not is_inexact(blocks[place].dtype):
        return frozenset()
    function = as_function(traced_states(operation, structs, sizes))

    def tangents(directions: list[Any], primals: list[Any]) -> list[Any]:
        def run(chosen: Any) -> list[Any]:
            leaves = function(*primals[:place], chosen, *primals[place + 1 :])
            return [leaf for leaf in leaves if is_inexact(leaf.dtype)]

        return jax.jvp(run, [primals[place]], directions)[1]

    matrix = dependence(tangents, [blocks[place]], blocks)
    reached = {operand.coordinate for row in matrix for operand, hit in zip(operands, row[1:], strict=True) if hit}
    return frozenset(name for name in reached if name is not None)


@remembered(maxsize=4096)
def _known_by(operation: Operation, structs: tuple[Struct, ...], policy: Any) -> bool:
    # Policies go by parameters of primitives of JAX. One of others may be called as the policy's own first argument is.
    own = {told.name for told in inspect.signature(policy).parameters.values() if told.kind in _BY_PLACE}

    def known(equation: Any) -> bool:
        params = {name: value for name, value in equation.params.items() if name not in own}
        return bool(policy(equation.primitive, *(atom.aval for atom in equation.invars), **params))

    needed = dependence_in(_whole(operation, structs).jaxpr, known=known)
    return not any(map(any, needed)) and all(map(any, _value_dependence(operation, structs)))


@remembered(maxsize=4096)
def _presents_linearly(operation: Operation, structs: tuple[Struct, ...]) -> bool:
    shaped = shape(operation, structs)
    if operation.present is None:
        return True
    if not all(is_inexact(leaf.dtype) for leaf in (*shaped.state, *shaped.results)):
        return False

    def tangents(directions: list[Any], state: list[Any]) -> list[Any]:
        return jax.jvp(lambda *leaves: present(shaped, list(leaves)), state, directions)[1]

    matrix = dependence(tangents, shaped.state, shaped.state)
    return not any(any(row[len(shaped.state) :]) for row in matrix)


def differentiated(graph: Graph, grad: bool | int | Sequence[int]) -> tuple[int, ...]:
    """The positions of the inputs that a gradient is taken for: all inexact ones, or those of the given arguments."""
    smooth = [i for i, node in enumerate(graph.inputs) if is_inexact(node.results[0].dtype)]
    if grad is True:
        return tuple(smooth)
    if grad is False:
        return ()
    wanted = {grad} if isinstance(grad, int) else set(grad)
    # By the tree alone: to make modules of a thousand leaves takes longer than to plan with them.
    counts = [argument.num_leaves for argument in graph.in_tree.children()]
    starts = [0, *itertools.accumulate(counts)]
    chosen = {
        i
        for number, count in enumerate(counts)
        if number in wanted
        for i in range(starts[number], starts[number] + count)
    }
    return tuple(i for i in smooth if i in chosen)
