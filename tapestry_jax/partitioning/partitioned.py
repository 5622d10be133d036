"""An arrow as a function for `jax.jit`: its plan follows from where its operands lie."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding

from combinators.arrows.tracing import graph_of
from combinators.errors import GraphError, MeshError, message
from combinators.graphs.evaluate import check_arguments, compiled
from combinators.graphs.graph import Graph
from combinators.kernels.immutable import Immutable
from tapestry_jax.partitioning.call import Call
from tapestry_jax.partitioning.following import following
from tapestry_jax.partitioning.settings import Settings
from tapestry_jax.plan import Plan


def partitioned(program: Any) -> Partitioned:
    """Use an arrow inside of ordinary jitted code, on a mesh that nobody tells it of.

    XLA partitions what `jax.jit` is given. Where it comes to the arrow, it is told by a rule of Shardy, made from the
    names of its dimensions, how shardings pass through. A plan is then made from the shardings that XLA has found for
    the operands, and each device runs the program of that plan on its blocks, with the plan's collectives. Without a
    mesh it is the arrow.

    Args:
      program: an arrow, a `tp.program`, a module of `tp.nnx`, or a graph, such as one that `tp.lift` gives.

    Returns:
      A function of arrays. `jax.grad` works, also twice; the backward pass computes what it needs of the forward pass
      again. `jax.vmap` and `jax.jvp` do not: make the batch a dimension.

    Raises:
      GraphError: for what is no program.

    Example:
      >>> import jax.numpy as jnp
      >>> import tapestry_jax as tp
      >>> product = partitioned(tp.einsum("i k, k n -> i n"))
      >>> jax.jit(lambda x, w: product(jnp.sin(x), w))(jnp.zeros((4, 8)), jnp.ones((8, 2))).shape
      (4, 2)
    """
    arrow = program if isinstance(program, Graph) else _arrow_of(program)
    return Partitioned(arrow)


class Partitioned(Immutable):
    """What `partitioned` returns: call it inside of `jax.jit`."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._calls: dict[tuple[int, Settings], tuple[Graph, Call]] = {}

    def __call__(self, *args: Any) -> Any:
        """Run the program on arrays, in the structure of its arguments.

        Raises:
          GraphError: under `jax.vmap`.
          MeshError: for operands on a mesh with explicit axes.
        """
        graph, leaves = self._read(args)
        if AxisType.Manual in (jax.sharding.get_abstract_mesh().axis_types or ()):
            # Inside of a `shard_map` these are the blocks of a device already, and nothing is left to partition.
            return jax.tree.unflatten(graph.out_tree, compiled(graph)(*leaves))
        for node, leaf in zip(graph.inputs, leaves, strict=True):
            _check_auto(leaf, node.name, graph.name)
        key = id(graph), Settings.here()
        if key not in self._calls:
            self._calls[key] = graph, Call(graph, key[1])
        return jax.tree.unflatten(graph.out_tree, self._calls[key][1](*leaves))

    def plan(self, *args: Any) -> Plan:
        """The plan that follows from operands that lie so: `print(f.plan(x, w).explain())`.

        Args:
          args: arrays, or `jax.ShapeDtypeStruct`s with a `NamedSharding`.

        Raises:
          MeshError: when none of them says on which mesh it lies.
        """
        graph, leaves = self._read(args)
        shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(args)]
        named = [each if isinstance(each, NamedSharding) else None for each in shardings]
        held = [leaf.sharding for leaf in leaves[: len(leaves) - len(named)]]
        named = [*(each if isinstance(each, NamedSharding) else None for each in held), *named]
        mesh = next((each.mesh for each in named if each is not None), None)
        if mesh is None:
            raise MeshError(
                message(
                    f"no operand of `{graph.name}` says on which mesh it lies",
                    f"got {', '.join(type(each).__name__ for each in shardings) or 'no operands'}",
                    remedy="Pass arrays, or jax.ShapeDtypeStructs, with a NamedSharding.",
                )
            )
        return following(graph, mesh, [None if each is None else each.spec for each in named])

    def _read(self, args: tuple[Any, ...]) -> tuple[Graph, list[Any]]:
        if isinstance(self._program, Graph):
            return self._program, check_arguments(self._program, args)
        return graph_of(self._program, args)

    def __repr__(self) -> str:
        return f"tp.partitioned({self._program!r})" if not isinstance(self._program, Graph) else "tp.partitioned(graph)"


def _arrow_of(program: Any) -> Any:
    convert = getattr(program, "__tapestry_arrow__", None)
    if convert is not None:
        return convert()
    if callable(getattr(program, "holders", None)):
        return program
    raise GraphError(
        message(
            "tp.partitioned takes an arrow or a graph",
            f"got {type(program).__name__}: {' '.join(repr(program).split()):.80}",
            remedy=_remedy(program),
        )
    )


def _remedy(program: Any) -> str:
    # By where its classes are from: Flax is not imported for a message.
    packages = {".".join(base.__module__.split(".")[:2]) for base in type(program).__mro__}
    if "flax.linen" in packages:
        told = "tp.partitioned(tp.lift(model, variables, x))(variables, x)"
        return f"Lift it, and call it on what it is applied to: {told}."
    if "flax.nnx" in packages:
        return "Lift it, and call it on its state: tp.partitioned(tp.lift(model, x))(nnx.state(model), x)."
    return "Write tp.partitioned(tp.program(f)), or tp.partitioned(tp.lift(f, *specs))."


def _check_auto(leaf: Any, name: str, program: str) -> None:
    mesh = getattr(getattr(jax.typeof(leaf), "sharding", None), "mesh", None)
    if mesh is None or AxisType.Explicit not in (mesh.axis_types or ()):
        return
    raise MeshError(
        message(
            f"`{program}` cannot follow shardings that are part of types, at `{name}`",
            f"got {mesh}",
            remedy="Use a mesh with auto axes, such as tp.mesh(data=2, model=4), or plan it: tp.plan(...).compile().",
        )
    )
