"""Plans by hand: what `tp.plan` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from combinators.errors import MeshError, PlanError, message, spelt
from combinators.graphs.graph import Graph
from combinators.graphs.walk import loops
from tapestry_jax.plan import Plan, make_plan
from tapestry_jax.planning.asked import read_asked
from tapestry_jax.planning.entries.items import Ring
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


def plan(
    graph: Graph,
    mesh: Any,
    entries: Mapping[str, Any] | None = None,
    *,
    ops: Mapping[str, Mapping[str, Any]] | None = None,
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
    accumulate: Any = None,
    platforms: Any = None,
    remat: Any = None,
) -> Plan:
    """Plan a graph by hand.

    Args:
      graph: from `tp.trace`.
      mesh: a `jax.sharding.Mesh`, such as `tp.mesh(data=2, model=4)`; an `AbstractMesh` plans without devices.
      entries: dimension name to mesh axis, tuple of mesh axes (outermost first) or None. An entry applies to every
        operation that has the dimension and can cut it. Behind mesh axes, or alone, stand `tp.chunks(n)` (a loop on the
        device), `tp.ring(axis)` (pieces that go round a mesh axis) and `tp.halo(depth=n)` (one exchange for `n` turns).
        A mesh axis for the dimension along which `tp.stack` takes its layers makes them stages of a pipeline, where
        some dimension flows through them in chunks.
      ops: exceptions by path of an operation or scope; the longest path that fits wins.
      inputs: layouts of inputs by name, such as `{"x": {"batch": "data"}}`; by default as their first user wants them.
        An axis that its mesh axes do not divide is stored over as many of them as do, else whole, and sliced inside;
        `tp.padded("data")` stores it in padded pieces. `tp.fsdp` chooses layouts for parameters.
      outputs: layouts of outputs by name; by default as they are produced, uneven axes gathered as far.
      accumulate: a float dtype in which folds and scans are carried where their states are narrower, such as
        `jnp.float32` for a bfloat16 program: partial results are made, sent and merged in it, and rounded once at the
        end, to the dtypes that the program gives them. Or a mapping from paths or scopes to such dtypes (None leaves
        a fold as it is, `""` is the whole program); the longest path that fits wins.
      platforms: what the program will be lowered for, where that is not the platform of the mesh: `"cuda"` plans for
        export on a CPU. It chooses among kernels for platforms (`tp.Dense`); with several platforms the program holds
        the kernels of each.
      remat: which layers the backward pass computes again instead of keeping all that they make: True for everything
        that is repeated (`tp.stack`, `tp.iterate`, `feedback`) or numbered (`decoder/0`, `decoder/1`), or a mapping
        from paths or scopes to True and False, such as `{"decoder": True}`, patterns among them (`"decoder/layer_*"`);
        the longest path that fits wins. The unit is one turn of the outermost repetition in a scope, one of its
        numbered parts outside of loops, or, where it has neither, the scope itself: kept are what it starts from and
        what other devices sent, so that nothing but gathered parameters is sent again. In place of True stands what
        else is kept: `"dots"` for the results of operations that read their operands through products and convolutions
        alone, `"dots_with_no_batch_dims"` for those among them whose products have no batch dimensions, `"nothing"` for
        nothing else; or `"rings_again"`: what came round a ring (`tp.ring`) is not kept either, and goes round once
        more. Values and gradients stay what they are.

    Returns:
      The plan. Nothing has run.

    Raises:
      PlanError: for unknown dimensions or paths, a mesh axis used twice in an operation, an entry that cuts nothing, a
        halo that no loop can have, a layout asked for that does not divide, a carrier that is no float or narrower
        than what it carries, remat of what is no part of the program, or that keeps what it cannot, or a ring that
        cannot be proved to go round in a repetition.
      MeshError: for an unknown mesh axis, or what is no mesh.

    Example:
      >>> from jax.sharding import AbstractMesh
      >>> import tapestry_jax as tp
      >>> types = tp.TensorType({"i": 8, "k": 4}), tp.TensorType({"k": 4, "n": 6})
      >>> product = tp.trace(tp.einsum("i k, k n -> i n"), *types)
      >>> by_rows = tp.plan(product, AbstractMesh((2,), ("data",)), {"i": "data"})
      >>> by_columns = tp.plan(product, by_rows.mesh, {"k": "data"})
      >>> [list(map(str, each.collectives())) for each in (by_rows, by_columns)]
      [[], ['all-reduce over data: 192 B, einsum']]
    """
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message(
                "only graphs can be planned",
                f"got {type(graph).__name__}: {spelt(graph)}",
                remedy="Trace the program first: tp.plan(tp.trace(f, *specs), mesh, {...}).",
            )
        )
    if isinstance(mesh, Mapping):
        sizes = ", ".join(f"{name}={size}" for name, size in cast("Mapping[Any, Any]", mesh).items())
        remedy = f"Make one with tp.mesh({sizes}), or pass a jax.sharding.Mesh or AbstractMesh."
        raise MeshError(message("a plan needs a mesh", f"got {type(mesh).__name__}: {spelt(mesh)}", remedy=remedy))
    asked = read_asked(MeshShape.of(mesh), entries, ops, inputs, outputs, accumulate, platforms, remat)
    plan = make_plan(graph, mesh, asked)
    _check_rings(plan)
    return plan


def _check_rings(plan: Plan) -> None:
    """Refuse rings in a repetition that cannot be proved to be right: which are depends on all that is around them."""
    placed = (*plan.entries, *(entry for _, entries in plan.ops for entry in entries))
    rings = any(isinstance(item, Ring) for _, items in placed for item in items)
    if not rings or not any(loops(plan.graph)):
        return
    try:
        plan.verify()
    except PlanError as error:
        raise PlanError(
            message(
                f"the rings of this plan of `{plan.graph.name}` cannot go round in its repetition",
                *str(error).splitlines()[:-1],
                remedy="Take chunks in the place of a ring, or place what is beside it otherwise.",
            )
        ) from error
