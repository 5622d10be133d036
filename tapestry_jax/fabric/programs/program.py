"""Programs that are applied to tensors by name: their graphs, their plans, and how both are remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from combinators.arrows.part import Part
from combinators.arrows.tracing import trace
from combinators.errors import FormatError, GraphError, KernelError, PlanError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.index_space.naming import is_coined
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.by_hand import plan as plan_by_hand
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.placing import check_bits
from tapestry_jax.fabric.tensors.records import Layout
from tapestry_jax.plan import Plan
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


@dataclass(frozen=True)
class Program:
    """What is applied.

    Attributes:
      graph: the program, for the types of its inputs.
      name: what it is called, where no file can hold it.
      text: its stored form; None where it has none.
      given: names of dimensions that somebody gave: of what it is applied to, and in its plan.
    """

    graph: Graph
    name: str
    text: str | None
    given: frozenset[str]

    @property
    def results(self) -> tuple[TensorType, ...]:
        """The types of its outputs, in order; what nobody gave a name has none, as tensors that were loaded so."""
        return tuple(self._as_given(self.graph.type_of(ref)) for _, ref in self.graph.outputs)

    def under(self, plan: Plan | None) -> Program:
        """The program, whose dimensions have names where a plan calls them by these: it says where they lie."""
        named = {dim for dim, _ in plan.entries} if plan is not None else frozenset[str]()
        return replace(self, given=self.given | named)

    def _as_given(self, type: TensorType) -> TensorType:
        names = [None if name not in self.given and is_coined(name) else name for name in type.names]
        return TensorType.make(names, type.shape, type.dtype)


def read_program(function: Any, names: Sequence[str], types: Sequence[TensorType], where: str) -> Program:
    """The graph of a function for tensors of these types.

    Raises:
      FabricError: where it takes others, holds parameters itself, or JAX has 64 bits off that tensors have.
      TapestryError: where it cannot be traced.
    """
    for name, type in zip(names, types, strict=True):
        check_bits(type.dtype, f"{where}: {name!r}")
    graph = function if isinstance(function, Graph) else _traced(function, types, where)
    wrong = [
        f"{node.name}: expected {node.results[0]}, got {name!r}, {type}"
        for node, name, type in zip(graph.inputs, names, types, strict=False)
        if not _fits(node.results[0], type)
    ]
    if len(graph.inputs) != len(names) or wrong:
        counts = [f"it takes {len(graph.inputs)}, got {len(names)}"] * (len(graph.inputs) != len(names))
        remedy = "Name one tensor for each of its inputs, in order."
        raise FabricError(message(f"{where}: these tensors do not fit", *counts, *wrong[:6], remedy=remedy))
    given = frozenset(name for type in types for name in type.names if name is not None)
    return Program(graph, _name(function, graph), _text(graph), given)


def _traced(function: Any, types: Sequence[TensorType], where: str) -> Graph:
    convert = getattr(function, "__tapestry_arrow__", None)
    target: Any = function if convert is None else convert()
    if isinstance(target, Part) and target.holders():
        held = ", ".join(holder.held_name for holder in target.holders()[:4])
        remedy = 'Say under which names it is kept: parameters="model".'
        told = f"it holds {held}, which no lineage could name"
        raise FabricError(message(f"{where}: the program has arrays of its own", told, remedy=remedy))
    return trace(function, *types)


def _fits(expected: TensorType, got: TensorType) -> bool:
    names = all(a == b for a, b in zip(expected.names, got.names, strict=False) if a and b)
    return expected.shape == got.shape and expected.dtype == got.dtype and names


def _name(function: Any, graph: Graph) -> str:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"{module}:{name}" if isinstance(module, str) and isinstance(name, str) else graph.name


def _text(graph: Graph) -> str | None:
    try:
        return graph.to_json()
    except (KernelError, GraphError, FormatError):
        return None  # such as a lambda: its name and the key of the graph are remembered


def stored_graph(text: str, allow: Sequence[str]) -> Graph:
    """A graph of the catalogue.

    Raises:
      FormatError: when it is none, or names what is not allowed.
    """
    return Graph.from_json(text, allow=tuple(allow))


def read_plan(asked: Any, graph: Graph, mesh: Any, layouts: Sequence[Layout], where: str) -> Plan | None:
    """How a program is laid out on the mesh; None where there is no mesh.

    Args:
      asked: a plan of this graph, entries as `tp.plan` takes them, or None: then dimensions go where the inputs have
        them.
      graph: the program.
      mesh: of the fabric.
      layouts: of the inputs.
      where: who asks, for messages.

    Raises:
      FabricError: for a plan of another program or without a mesh.
      PlanError: for entries that cannot be.
    """
    if isinstance(asked, Plan):
        if asked.graph.key != graph.key:
            remedy = "Plan the graph of this program, for the types of these tensors."
            raise FabricError(message(f"{where}: the plan is one of another program", remedy=remedy))
        return asked
    if asked is not None and not isinstance(asked, Mapping):
        told = f"got {type(asked).__name__}: {spelt(asked)}"
        raise FabricError(message(f"{where}: plan= is no plan", told, remedy="Pass entries as tp.plan takes them."))
    if mesh is None:
        if asked:
            remedy = "Open the fabric with a mesh: tp.Fabric(path, mesh=mesh)."
            raise FabricError(message(f"{where}: a plan needs a mesh", f"got {spelt(asked)}", remedy=remedy))
        return None
    return plan_by_hand(graph, mesh, asked) if asked is not None else _followed(graph, mesh, layouts)


def _followed(graph: Graph, mesh: Any, layouts: Sequence[Layout]) -> Plan:
    """The plan by the layouts of the inputs: an entry that cannot be, or cuts nothing, is left out."""
    known, entries = MeshShape.of(mesh).names, dict[str, Any]()
    found = plan_by_hand(graph, mesh, {})
    for name, axes in dict(pair for layout in layouts for pair in layout).items():
        here = tuple(axis for axis in axes if axis in known)
        try:
            found = plan_by_hand(graph, mesh, {**entries, name: here}) if here else found
            entries |= {name: here} if here else {}
        except PlanError:
            continue
    return found


def run(program: Graph, plan: Plan | None, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The outputs, in order."""
    arguments = jax.tree.unflatten(program.in_tree, list(arrays))
    return jax.tree.leaves(program(*arguments) if plan is None else plan.compile()(*arguments))


def plan_detail(plan: Plan | None) -> Mapping[str, Any]:
    """What is remembered of a plan."""
    return {"plan": None if plan is None else plan.to_json()}
