"""What a user asks of a plan: read, made uniform, and checked as far as that needs no graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combinators.arguments import read_name
from combinators.errors import PlanError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.planning.entries.layouts import Named, place_layouts, read_layouts
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.entries.read import Entries, check_placed, read_entries
from tapestry_jax.planning.entries.remat import Remat, read_remat
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.rewrites.carriers import Accumulate, read_accumulate
from tapestry_jax.planning.rewrites.platforms import Platforms, read_platforms


@dataclass(frozen=True)
class Asked:
    """The arguments of `tp.plan` beside graph and mesh, and what a stored plan holds.

    Attributes:
      entries: dimension and mesh axes, for all operations.
      ops: exceptions by path.
      inputs: layouts asked for, by name of the input.
      outputs: layouts asked for, by name of the output.
      accumulate: dtypes in which folds are carried, by scope.
      platforms: what it is lowered for; empty for the platform of the mesh.
      remat: scopes whose layers the backward pass computes again.
    """

    entries: Entries
    ops: tuple[tuple[str, Entries], ...]
    inputs: Named
    outputs: Named
    accumulate: Accumulate = ()
    platforms: Platforms = ()
    remat: Remat = ()

    def placer(self, mesh: MeshShape) -> Placer:
        """What says where the dimensions of each operation go.

        Raises:
          PlanError: for entries that only storage can have.
        """
        check_placed(self.entries, "the plan")
        for path, excepted in self.ops:
            check_placed(excepted, f"ops[{path!r}]")
        return Placer(mesh, self.entries, self.ops)

    def input_layouts(self, graph: Graph, mesh: MeshShape) -> dict[int, Layout]:
        """Layouts of inputs by position, for those that were asked for.

        Raises:
          PlanError: for what the graph does not have, or a layout that does not divide.
        """
        given = {node.name: (i, node.results[0]) for i, node in enumerate(graph.inputs)}
        return place_layouts(self.inputs, given, mesh, "inputs")

    def output_layouts(self, graph: Graph, mesh: MeshShape) -> dict[int, Layout]:
        """Layouts of outputs by position, likewise."""
        made = {name: (i, graph.type_of(ref)) for i, (name, ref) in enumerate(graph.outputs)}
        return place_layouts(self.outputs, made, mesh, "outputs")


def read_asked(
    mesh: MeshShape,
    entries: Any,
    ops: Any,
    inputs: Any,
    outputs: Any,
    accumulate: Any,
    platforms: Any,
    remat: Any,
) -> Asked:
    """Read the arguments of `tp.plan`; None where nothing was asked for.

    Raises:
      PlanError: for what is no such argument.
      MeshError: for an unknown mesh axis.
    """
    return Asked(
        read_entries({} if entries is None else entries, mesh, "the plan"),
        _read_ops(ops, mesh),
        read_layouts(inputs, mesh, "inputs"),
        read_layouts(outputs, mesh, "outputs"),
        read_accumulate(accumulate),
        read_platforms(platforms),
        read_remat(remat),
    )


def _read_ops(ops: Any, mesh: MeshShape) -> tuple[tuple[str, Entries], ...]:
    if ops is None:
        return ()
    if not isinstance(ops, Mapping):
        raise PlanError(
            message(
                "ops is a mapping from paths to entries",
                f"got {type(ops).__name__}: {spelt(ops)}",
                remedy='Write ops={"decoder/3/attention": {"heads": None}}.',
            )
        )
    paths = [read_name(path, "a path in ops=", PlanError) for path in ops]
    known: Any = list(ops.values())
    return tuple((path, read_entries(entry, mesh, f"ops[{path!r}]")) for path, entry in zip(paths, known, strict=True))
