"""A plan that follows from where the operands of a program lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jax.sharding import PartitionSpec

from combinators.errors import PlanError
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.partitioning.rule import cut_anywhere
from tapestry_jax.plan import Plan, make_plan
from tapestry_jax.planning.asked import read_asked
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

Axes = tuple[str, ...]
Placed = dict[str, Axes]
"""Dimension and mesh axes."""


def following(
    graph: Graph,
    mesh: Any,
    operands: Sequence[PartitionSpec | None],
    results: Sequence[PartitionSpec | None] = (),
) -> Plan:
    """Plan a program for operands that lie so.

    A dimension goes where the operands have it, of two that differ where the first has it; else where a result is
    wanted to have it. What would place one mesh axis twice in an operation is left out, dimensions that no result has
    before others, so that there is always a plan. Operands enter as they lie, and the plan says what that sends.

    Args:
      graph: the program.
      mesh: any.
      operands: how they lie; None where that is not known.
      results: how they are wanted.
    """
    shape = MeshShape.of(mesh)
    kinds = [node.results[0] for node in graph.inputs]
    ends = [graph.type_of(ref) for _, ref in graph.outputs]
    stored = {node.name: _placed(kind, spec, shape) for node, kind, spec in _zipped(graph.inputs, kinds, operands)}
    wanted = {name: _placed(kind, spec, shape) for (name, _), kind, spec in _zipped(graph.outputs, ends, results)}
    carried, able = {name for kind in ends for name in kind.names}, cut_anywhere(graph)
    entries: Placed = {}
    for tensors in (stored, wanted):
        first = [(name, axes) for placed in tensors.values() for name, axes in placed.items() if name in able]
        for name, axes in sorted(first, key=lambda each: each[0] not in carried):
            entries.setdefault(name, axes)
    layouts = {name: placed for name, placed in stored.items() if placed}
    asked = {name: placed for name, placed in wanted.items() if placed}
    for chosen, inputs, outputs in _ways(graph, mesh, entries, layouts, asked):
        found = _planned(graph, mesh, chosen, inputs, outputs)
        if found is not None:
            return found
    return make_plan(graph, mesh, read_asked(shape, None, None, None, None, None, None, None))


def _ways(
    graph: Graph, mesh: Any, entries: Placed, inputs: dict[str, Placed], outputs: dict[str, Placed]
) -> Iterator[tuple[Placed, dict[str, Placed], dict[str, Placed]]]:
    """What to ask for, the most first."""
    yield entries, inputs, outputs
    yield entries, inputs, {}
    fitting: Placed = {}
    for name, axes in entries.items():
        if _planned(graph, mesh, {**fitting, name: axes}, {}, {}) is not None:
            fitting[name] = axes
    yield fitting, inputs, outputs
    yield fitting, inputs, {}
    yield fitting, {}, {}


def _planned(
    graph: Graph, mesh: Any, entries: Placed, inputs: dict[str, Placed], outputs: dict[str, Placed]
) -> Plan | None:
    try:
        asked = read_asked(MeshShape.of(mesh), entries, None, inputs, outputs, None, None, None)
        return make_plan(graph, mesh, asked)
    except PlanError:
        return None


def _placed(kind: TensorType, spec: PartitionSpec | None, mesh: MeshShape) -> Placed:
    """The dimensions of a tensor that are cut, over as many of their mesh axes as divide them."""
    found: Placed = {}
    for name, size, said in zip(kind.names, kind.shape, (*(spec or ()), *(None,) * len(kind.shape)), strict=False):
        axes: Axes = (said,) if isinstance(said, str) else tuple(said or ())
        axes = tuple(axis for axis in axes if mesh.size((axis,)) > 1)
        while size % mesh.size(axes):
            axes = axes[:-1]
        if axes and name is not None and size:
            found[name] = axes
    return found


def _zipped(owners: Sequence[Any], kinds: Sequence[TensorType], specs: Sequence[PartitionSpec | None]) -> Iterator[Any]:
    known = (*specs, *(None,) * (len(owners) - len(specs)))
    return zip(owners, kinds, known, strict=True)
