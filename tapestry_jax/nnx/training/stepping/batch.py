"""What a batch holds of which no numbers come: what is not finite, and what is looked up in a table that has it not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Ref, move_refs


def faults_of(graph: Graph, batch: Sequence[Any]) -> list[str]:
    """What is wrong with a batch, in words; empty where nothing is that can be told here.

    Of what lies on the devices of other processes nothing is told.

    Args:
      graph: of the loss, for batches of these sizes.
      batch: what it takes behind the model, in its order.
    """
    leaves = [leaf if getattr(leaf, "is_fully_addressable", True) else None for leaf in jax.tree.leaves(list(batch))]
    first = len(jax.tree.leaves(jax.tree.unflatten(graph.in_tree, graph.inputs)[0]))
    places = [at for at, node in enumerate(graph.nodes) if isinstance(node, Input)][first:]
    given = {at: np.asarray(leaf) for at, leaf in zip(places, leaves, strict=False) if leaf is not None}
    return [*_infinite(graph, given), *_absent(graph, given)]


def _infinite(graph: Graph, given: Mapping[int, np.ndarray]) -> Iterator[str]:
    for at, array in given.items():
        if jnp.issubdtype(array.dtype, jnp.inexact) and not (found := np.isfinite(array)).all():
            cell = tuple(int(axis) for axis in np.unravel_index(np.argmin(found), array.shape))
            yield f"`{graph.nodes[at].path}` of the batch is {array[cell]} at {list(cell)}"


def _absent(graph: Graph, given: Mapping[int, np.ndarray]) -> Iterator[str]:
    for node in graph.nodes:
        looked_up = getattr(node.operation.kernel, "looked_up", None) if isinstance(node, Apply) else None
        if looked_up is None:
            continue
        operand, there = looked_up
        told, numbers = _numbers(graph, node.operands[operand], given)
        outside = numbers[(numbers < there.start) | (numbers >= there.stop)]
        if outside.size:
            yield f"{told} of the batch holds {outside[0]}, and `{node.path}` has entries from 0 to {there.stop - 1}"


def _numbers(graph: Graph, ref: Ref, given: Mapping[int, np.ndarray]) -> tuple[str, np.ndarray]:
    """What is looked up, where whole numbers of the batch alone say it, and the arguments that do; else nothing."""
    needed = {ref.node}
    for at in range(ref.node, -1, -1):
        node = graph.nodes[at]
        if at in needed and ((isinstance(node, Input) and at not in given) or not all(map(_is_whole, node.results))):
            return "", np.zeros(0, int)
        needed.update(operand.node for operand in node.operands if at in needed)
    order = sorted(needed)
    moved = {old: new for new, old in enumerate(order)}
    inputs = [at for at in order if isinstance(graph.nodes[at], Input)]
    part = replace(
        graph,
        nodes=tuple(move_refs(graph.nodes[at], moved) for at in order),
        outputs=(("numbers", Ref(moved[ref.node], ref.output)),),
        named=(),
        in_tree=jax.tree.structure(tuple(inputs)),
        out_tree=jax.tree.structure(0),
    )
    told = " and ".join(f"`{graph.nodes[at].path}`" for at in inputs)
    return told, np.asarray(part(*(given[at] for at in inputs)))


def _is_whole(kind: Any) -> bool:
    return jnp.issubdtype(kind.dtype, jnp.integer) or kind.dtype == jnp.bool_
