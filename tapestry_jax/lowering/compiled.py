"""The compiled form of a plan: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import jax
from jax.sharding import AxisType

from combinators.errors import PlanError, SignatureError, TapestryError, message
from combinators.graphs.evaluate import check_unchanged, flatten_arguments, takes_on
from combinators.index_space.tensor_type import type_of, words_of
from combinators.index_space.usable import check_usable
from combinators.kernels.immutable import Immutable
from tapestry_jax.lowering.boundary import padded, placed, sharding, spec, without_padding_gradient
from tapestry_jax.lowering.devices import (
    check_ambient_mesh,
    is_compile_only,
    is_traced,
    only_compiles,
    refuse_calls,
    require_running,
    require_sendable,
)
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.program import run_schedule
from tapestry_jax.planning.scheduling.schedule import Schedule, Slot

_REFUSED = "Custom JVP rule must produce"
"""How JAX's refusal begins: of a tangent that is the same on all devices, where its result is not."""

_ELSEWHERE = "Only interpret mode is supported"
"""What JAX says of a kernel of Pallas that is for other devices."""


class Compiled(Immutable):
    """A planned program as one jitted function.

    Call it with the arguments that the graph was traced for. It is an ordinary JAX function: `grad`, `jvp`, `vmap` and
    an enclosing `jit` work. Arrays that lie elsewhere than the plan wants them are brought there before it runs.
    """

    def __init__(self, schedule: Schedule, mesh: Any) -> None:
        self._schedule, self._mesh = schedule, mesh
        self._only_compiles = is_compile_only(mesh)
        program = build(schedule, mesh)
        self._jit = jax.jit(program)
        tree = schedule.graph.in_tree
        self._trees = {tree}

        def of_leaves(*leaves: Any) -> list[Any]:
            return jax.tree.leaves(program(*jax.tree.unflatten(tree, leaves)))

        of_leaves.__name__ = program.__name__
        self._slots = [schedule.slots[slot] for slot in schedule.inputs]
        given = tuple(sharding(slot.layout, mesh) for slot in self._slots)
        made = [sharding(schedule.slots[slot].layout, mesh) for slot in schedule.outputs]
        # XLA would choose layouts of its own for what nobody pins.
        self._pinned = jax.jit(of_leaves, in_shardings=given, out_shardings=made)
        # What is pinned takes no cotangents that lie elsewhere, and nobody can ask for them to be moved; and where a
        # mesh is set JAX (0.10.2) does not transpose or batch it. What is traced is pinned by what is around it.
        self._free = jax.jit(of_leaves)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self._schedule.mesh.axes)
        return f"Compiled({self._schedule.graph!r}, {axes})"

    def __call__(self, *args: Any) -> Any:
        """Run the program."""
        leaves, tree = jax.tree.flatten(args)
        if self._only_compiles and not any(map(is_traced, leaves)):
            require_running(self._mesh)
        leaves = [words_of(leaf) for leaf in leaves]
        if tree not in self._trees:
            planned_arguments(self._schedule, args)
            self._trees.add(tree)
        return jax.tree.unflatten(self._schedule.graph.out_tree, self._run(leaves, args))

    def _run(self, leaves: list[Any], args: tuple[Any, ...]) -> list[Any]:
        run = self._free if any(map(is_traced, leaves)) else self._pinned
        try:
            with rules_told():
                return run(*leaves)
        except TapestryError:
            raise
        except AttributeError as error:
            if self._only_compiles:  # under `jax.grad` alone JAX runs what it was given traced
                raise only_compiles(self._mesh) from error
            raise
        except (RuntimeError, OverflowError):
            planned_arguments(self._schedule, args)  # tells what was deleted, and numbers that no dtype holds
            raise
        except (TypeError, ValueError) as error:
            if _ELSEWHERE in str(error) and self._schedule.platforms:
                raise self._planned_elsewhere(error) from error
            # JAX refuses what is no array, and arrays that were put elsewhere, before the program sees them.
            leaves = planned_arguments(self._schedule, args)
            moved = [placed(leaf, slot, self._mesh) for leaf, slot in zip(leaves, self._slots, strict=True)]
            if all(new is old for new, old in zip(moved, leaves, strict=True)):
                raise
            return run(*moved)

    def _planned_elsewhere(self, error: Exception) -> PlanError:
        return PlanError(
            message(
                f"this plan was made for {' and '.join(self._schedule.platforms)}, and runs on "
                f"{self._mesh.devices.flat[0].platform}: a kernel that it has chosen is for those alone",
                f"JAX says  {str(error).partition(chr(10))[0]:.200}",
                remedy="Leave platforms= out, or run it on the devices that it was planned for.",
            )
        )

    def lower(self, *args: Any) -> Any:
        """The program as XLA takes it (`.compile()`, `.as_text()`); without arguments for the planned layouts."""
        try:
            return self._jit.lower(*(args or argument_structs(self._schedule, self._mesh)))
        except (TypeError, OverflowError):
            if args:
                planned_arguments(self._schedule, args)
            raise

    def jaxpr(self) -> Any:
        """The program as JAX traces it for the planned types: one `shard_map`. Nothing is lowered, compiled or run."""
        return self._jit.trace(*argument_structs(self._schedule, self._mesh)).jaxpr

    def __reduce__(self) -> NoReturn:
        raise PlanError(
            message(
                "a compiled plan cannot be pickled",
                remedy="Store the plan with to_json, and compile it again: tp.Plan.from_json(text, graph).compile().",
            )
        )

    @property
    def jitted(self) -> Any:
        """The jitted function itself, as `jax.export` takes it."""
        return self._jit


def build(schedule: Schedule, mesh: Any) -> Any:
    """One `shard_map` program with explicit collectives, from arguments as they are stored to results as they are."""
    require_sendable((slot.type for slot in schedule.slots), mesh)
    graph = schedule.graph
    slots = [schedule.slots[slot] for slot in schedule.inputs]
    results = [schedule.slots[slot] for slot in schedule.outputs]
    device_program = on_device(schedule)

    def run(*args: Any) -> Any:
        check_ambient_mesh(mesh)
        refuse_calls(mesh)
        leaves = [
            _stored(jax.numpy.asarray(leaf, slot.type.dtype), slot, schedule, mesh)
            for leaf, slot in zip(planned_arguments(schedule, args), slots, strict=True)
        ]
        sharded = jax.shard_map(
            device_program,
            mesh=mesh,
            in_specs=tuple(spec(slot.layout) for slot in slots),
            out_specs=[spec(slot.layout) for slot in results],
            check_vma=True,
        )
        return jax.tree.unflatten(graph.out_tree, sharded(*leaves))

    run.__name__ = graph.name if graph.name.isidentifier() else "program"
    return run


def on_device(schedule: Schedule) -> Callable[..., list[Any]]:
    """What one device runs, inside of a `shard_map`: from its pieces of the arguments to those of the results."""
    results = [schedule.slots[slot] for slot in schedule.outputs]

    def device_program(*pieces: Any) -> list[Any]:
        check_unchanged(schedule.graph)
        here = Here(schedule.mesh.axes)
        made = run_schedule(schedule, pieces)
        return [without_padding_gradient(piece, slot, here) for piece, slot in zip(made, results, strict=True)]

    return device_program


def argument_structs(schedule: Schedule, mesh: Any) -> Any:
    """The arguments as they are stored, as types with shardings."""
    leaves = [
        jax.ShapeDtypeStruct(
            slot.layout.padded_shape(slot.type.shape, schedule.mesh),
            slot.type.dtype,
            sharding=sharding(slot.layout, mesh),
        )
        for slot in (schedule.slots[i] for i in schedule.inputs)
    ]
    return jax.tree.unflatten(schedule.graph.in_tree, leaves)


def planned_arguments(schedule: Schedule, args: Sequence[Any]) -> list[Any]:
    """Flat arguments of true sizes, or padded where the plan stores them so.

    Raises:
      GraphError: for a wrong number or structure of arguments.
      SignatureError: for a wrong rank, size or dtype.
    """
    graph = schedule.graph
    leaves = flatten_arguments(graph, args)
    check_usable([node.name for node in graph.inputs], leaves, graph.name)
    wrong: list[str] = []
    for node, leaf, slot in zip(graph.inputs, leaves, (schedule.slots[i] for i in schedule.inputs), strict=True):
        true, padded = node.results[0].shape, slot.layout.padded_shape(node.results[0].shape, schedule.mesh)
        got = type_of(leaf, f"argument `{node.name}` of `{graph.name}`")
        # Python numbers come as weakly typed arrays out of `jit`.
        weak = isinstance(leaf, bool | int | float | complex) or bool(getattr(leaf, "weak_type", False))
        fits = takes_on(leaf, node.results[0].dtype) if weak else got.dtype == node.results[0].dtype
        if got.shape not in (true, padded) or not fits:
            also = f" (or padded {padded})" if padded != true else ""
            wrong.append(f"{node.name}: expected {node.results[0]}{also}, got {got}")
    if wrong:
        raise SignatureError(
            message(
                f"`{graph.name}` was planned for other arguments",
                *wrong,
                remedy="Pass arrays of these sizes and dtypes, or trace and plan again for the new ones.",
            )
        )
    return leaves


def _stored(array: Any, slot: Slot, schedule: Schedule, mesh: Any) -> Any:
    if array.shape != slot.layout.padded_shape(slot.type.shape, schedule.mesh):
        return padded(array, slot, mesh)
    if AxisType.Explicit not in (mesh.axis_types or ()):
        return array
    # Where axes are explicit, types say how arrays lie, and `shard_map` takes them as it names them.
    return jax.reshard(array, sharding(slot.layout, mesh))


@contextmanager
def rules_told() -> Generator[None]:
    """Run what may take a derivative.

    Raises:
      PlanError: for a tangent of a kernel's `jax.custom_jvp` that does not depend on the device, as its result does.
    """
    try:
        yield
    except TypeError as error:
        if _REFUSED not in str(error):
            raise
        raise PlanError(
            message(
                "the derivative of a kernel's `jax.custom_jvp` gives a tangent that is the same on all devices",
                f"JAX says  {' '.join(str(error).split())}",
                remedy="Make a tangent of zeros by jnp.zeros_like of the tangent that the rule is given, "
                "which lies as that one does; jnp.zeros(shape) lies on no mesh.",
            )
        ) from error
