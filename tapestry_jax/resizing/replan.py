"""The plan of a program at other sizes, which asks for the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.plan import Plan, asked_of, make_plan
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.layouts import Named
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


def replan(plan: Plan, graph: Graph, asked: Asked | None = None) -> Plan:
    """Plan the same program at other sizes: nothing is searched again.

    Where a layout that was asked for an argument or a result does not divide any more, it is that over as many of its
    mesh axes as do; what operations do is padded inside, as in every plan.

    Args:
      plan: of the program.
      graph: of the program, traced for other sizes.
      asked: by default what the plan was asked for.

    Raises:
      PlanError: when it is another program, or one whose sizes decide which operations it has.
    """
    _check_same(plan.graph, graph)
    asked, mesh = asked or asked_of(plan), MeshShape.of(plan.mesh)
    inputs = {node.name: node.results[0] for node in graph.inputs}
    outputs = {name: graph.type_of(ref) for name, ref in graph.outputs}
    relaxed = {"inputs": _dividing(asked.inputs, inputs, mesh), "outputs": _dividing(asked.outputs, outputs, mesh)}
    return make_plan(graph, plan.mesh, replace(asked, **relaxed))


def _dividing(named: Named, types: dict[str, TensorType], mesh: MeshShape) -> Named:
    found: list[Any] = []
    for name, entries in named:
        sizes = dict(zip(types[name].names, types[name].shape, strict=True))
        found.append((name, tuple((dim, _prefix(item, sizes.get(dim, 0), mesh)) for dim, item in entries)))
    return tuple(found)


def _prefix(items: Any, size: int, mesh: MeshShape) -> Any:
    """The mesh axes of a layout that divide a size; what is stored in padded pieces divides every size."""
    axes = tuple(items)
    while axes and all(isinstance(axis, str) for axis in axes) and size % mesh.size(axes):
        axes = axes[:-1]
    return axes


def _check_same(old: Graph, new: Graph) -> None:
    before, after = ([node.path for node in graph.nodes] for graph in (old, new))
    if before == after and [name for name, _ in old.outputs] == [name for name, _ in new.outputs]:
        return
    pairs = zip([*before, "nothing"], [*after, "nothing"], strict=False)
    left, right = next(((a, b) for a, b in pairs if a != b), ("its results", "others"))
    raise PlanError(
        message(
            f"this plan of `{old.name}` is for another program than `{new.name}` is at these sizes",
            f"the first operation that differs: {left}, and here {right}",
            remedy="Pass what the graph of the plan was made of; if sizes decide what it does, plan each of them.",
        )
    )
