"""A program as one operation of XLA's graph, which its partitioner replaces by the program of each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, NoReturn

import jax
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from combinators.errors import GraphError, MeshError, message
from combinators.graphs.evaluate import evaluate
from combinators.graphs.graph import Graph
from combinators.kernels.immutable import Immutable
from combinators.kernels.jaxprs import as_function, part_of
from tapestry_jax.partitioning.following import following
from tapestry_jax.partitioning.local import lies, local_program
from tapestry_jax.partitioning.rule import sharding_rule
from tapestry_jax.partitioning.settings import Settings
from tapestry_jax.partitioning.tensors import Tensors
from tapestry_jax.plan import Plan


class Call(Immutable):
    """A program, or its gradient, or the gradient of that.

    Args:
      graph: the program.
      settings: of JAX, under which it is traced, whole and in pieces.
      tensors: operands and results; by default those of the program.
    """

    def __init__(self, graph: Graph, settings: Settings, tensors: Tensors | None = None) -> None:
        self._graph, self._settings, self._tensors = graph, settings, tensors or Tensors.of_graph(graph)

    def __call__(self, *leaves: Any) -> list[Any]:
        """Apply the operation to its flat operands."""
        return self._function(*leaves)

    @cached_property
    def _gradient(self) -> Call:
        return Call(self._graph, self._settings, self._tensors.gradient)

    @cached_property
    def _function(self) -> Callable[..., list[Any]]:
        """The operation with its derivative, which is an operation again."""
        operation = self._operation

        def apply(*leaves: Any) -> list[Any]:
            return operation(*leaves)

        def forwards(*leaves: Any) -> tuple[list[Any], Any]:
            # By the same rule again: its own gradient may be asked for.
            return self(*leaves), leaves

        def backwards(leaves: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
            smooth = [cotangents[place] for place in self._tensors.smooth_results]
            found: list[Any] = [None] * len(leaves)
            for place, made in zip(self._tensors.smooth_operands, self._gradient(*leaves, *smooth), strict=True):
                found[place] = made
            return tuple(found)

        function: Any = jax.custom_vjp(apply)
        function.defvjp(forwards, backwards)
        return function

    @cached_property
    def _operation(self) -> Callable[..., list[Any]]:
        name, tensors = self._graph.name, self._tensors
        with self._settings.entered():
            traced: Any = jax.make_jaxpr(lambda *leaves: self._unplanned(tensors, leaves))(
                *(kind.struct for kind in tensors.operands)
            )
        # An operation holds no arrays: those of the program are operands, too.
        program, held = traced.jaxpr, traced.consts
        whole = as_function(part_of(program, program.eqns, [*program.constvars, *program.invars], program.outvars))
        operation: Any = custom_partitioning(lambda *arrays: whole(*arrays))
        rule = sharding_rule(self._graph, tensors, held)
        operation.def_partition(
            partial(self._partition, len(held)),
            infer_sharding_from_operands=partial(self._infer, len(held)),
            sharding_rule=rule,
        )

        def named(*arrays: Any) -> list[Any]:
            return operation(*arrays)

        # JAX keeps compiled programs by their texts, in which this operation is no more than a number of this process.
        named.__name__ = (
            f"{name if name.isidentifier() else 'program'}_{sha256(str(program).encode()).hexdigest()[:16]}"
        )
        jitted = jax.jit(named)

        @custom_vmap
        def apply(*leaves: Any) -> list[Any]:
            return jitted(*held, *leaves)

        @apply.def_vmap
        def _(axis_size: int, batched: Any, *leaves: Any) -> NoReturn:
            del batched, leaves
            raise GraphError(
                message(
                    f"`{name}` is partitioned by XLA, and jax.vmap cannot add an axis to it",
                    f"got a batch of {axis_size}",
                    remedy="Make the batch a dimension of the program, or call it without tp.partitioned.",
                )
            )

        return apply

    def _unplanned(self, tensors: Tensors, leaves: Sequence[Any]) -> list[Any]:
        """The operation on whole arrays."""
        inner = tensors.of
        if inner is None:
            return evaluate(self._graph, leaves)
        operands, cotangents = list(leaves[: len(inner.operands)]), leaves[len(inner.operands) :]

        def of_smooth(*chosen: Any) -> list[Any]:
            filled = list(operands)
            for place, leaf in zip(inner.smooth_operands, chosen, strict=True):
                filled[place] = leaf
            results = self._unplanned(inner, filled)
            return [results[place] for place in inner.smooth_results]

        _, pull = jax.vjp(of_smooth, *(operands[place] for place in inner.smooth_operands))
        return list(pull(list(cotangents)))

    def _planned(self, mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Plan:
        """The plan for operands that lie so, cotangents among them as results of the program are wanted."""
        graph, tensors = self._graph, self._tensors
        shardings = [each.sharding for each in (*operands, *results)]
        if any(not isinstance(each, NamedSharding) for each in shardings) or mesh.empty:
            raise MeshError(
                message(
                    f"`{graph.name}` is partitioned over devices that no mesh names",
                    remedy="Give jax.jit arrays with a NamedSharding, or call it under jax.set_mesh(mesh).",
                )
            )
        specs = [each.spec for each in shardings]
        count, inputs = len(operands), len(graph.inputs)
        wanted = specs[count:]
        if tensors.of is not None:
            made = specs[inputs : inputs + len(tensors.program.smooth_results)]
            at = dict(zip(tensors.program.smooth_results, made, strict=True))
            wanted = [at.get(place) for place in range(len(tensors.program.results))]
        return following(graph, mesh, specs[:inputs], wanted)

    def _partition(self, held: int, mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        # XLA asks in a thread of its own, which knows nothing of the `with` statements around the call.
        with self._settings.entered():
            plan = self._planned(mesh, operands[held:], results)
            given, made = lies(plan.schedule, self._tensors)
            local = local_program(plan.schedule, mesh, self._tensors)
        laid = [NamedSharding(mesh, spec) for spec in (*(PartitionSpec(),) * held, *given)]
        return mesh, lambda *pieces: local(*pieces[held:]), [NamedSharding(mesh, spec) for spec in made], tuple(laid)

    def _infer(self, held: int, mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        # Without Shardy: the results of the program may lie anywhere.
        del results
        with self._settings.entered():
            made = lies(self._planned(mesh, operands[held:], ()).schedule, self._tensors)[1]
        return [NamedSharding(mesh, spec) for spec in made]
