"""The compiled form of a plan: arrays in, arrays out."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from combinators.errors import MeshError, PlanError, SignatureError, message
from combinators.evaluate import check_arguments, flatten_arguments
from combinators.immutable import Immutable
from combinators.tensor_type import is_inexact, type_of
from tapestry_jax.lowering.pad import crop_axis, pad_axis
from tapestry_jax.lowering.program import run_schedule
from tapestry_jax.planning.layout import Layout
from tapestry_jax.planning.schedule import Schedule, Slot


class Compiled(Immutable):
    """A planned program as one jitted function.

    Call it with the arguments that the graph was traced for, of their true sizes or padded by `plan.put`. It is an
    ordinary JAX function: `grad`, `jvp`, `vmap` and an enclosing `jit` work.
    """

    def __init__(self, schedule: Schedule, mesh: Any, *, crop: bool) -> None:
        self._schedule, self._mesh = schedule, mesh
        self._jit = jax.jit(build(schedule, mesh, crop=crop))

    def __call__(self, *args: Any) -> Any:
        """Run the program."""
        try:
            return self._jit(*args)
        except TypeError:
            # JAX refuses what is no array before the program sees it; say which argument it was.
            check_arguments(self._schedule.graph, args)
            raise

    def lower(self, *args: Any) -> Any:
        """The program as XLA takes it (`.compile()`, `.as_text()`); without arguments for the planned layouts."""
        return self._jit.lower(*(args or argument_structs(self._schedule, self._mesh)))

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


def build(schedule: Schedule, mesh: Any, *, crop: bool) -> Any:
    """One `shard_map` program with explicit collectives; pads what comes in and crops what goes out."""
    graph, shape = schedule.graph, schedule.mesh
    slots = [schedule.slots[slot] for slot in schedule.inputs]
    results = [schedule.slots[slot] for slot in schedule.outputs]

    def device_program(*pieces: Any) -> list[Any]:
        return run_schedule(schedule, pieces)

    def run(*args: Any) -> Any:
        kinds = [slot.type.dtype for slot in slots]
        leaves = [
            jax.numpy.asarray(leaf, kind) for leaf, kind in zip(planned_arguments(schedule, args), kinds, strict=True)
        ]
        padded = [
            _placed(_padded(leaf, slot.layout.padded_shape(slot.type.shape, shape), mesh), slot.layout, mesh)
            for leaf, slot in zip(leaves, slots, strict=True)
        ]
        sharded = jax.shard_map(
            device_program,
            mesh=mesh,
            in_specs=tuple(spec(slot.layout) for slot in slots),
            out_specs=[spec(slot.layout) for slot in results],
            check_vma=True,
        )
        outputs = sharded(*padded)
        finish = _cropped if crop else _without_padding_gradient
        outputs = [finish(leaf, slot, mesh) for leaf, slot in zip(outputs, results, strict=True)]
        return jax.tree.unflatten(graph.out_tree, outputs)

    run.__name__ = graph.name if graph.name.isidentifier() else "program"
    return run


def spec(layout: Layout) -> PartitionSpec:
    """The layout as JAX writes it."""
    return PartitionSpec(*(None if cut is None else cut.axes for cut in layout.cuts))


def sharding(layout: Layout, mesh: Any) -> NamedSharding:
    """The layout on the devices of a mesh."""
    return NamedSharding(mesh, spec(layout))


def argument_structs(schedule: Schedule, mesh: Any) -> Any:
    """The padded arguments as types with shardings."""
    leaves = [
        jax.ShapeDtypeStruct(
            slot.layout.padded_shape(slot.type.shape, schedule.mesh),
            slot.type.dtype,
            sharding=sharding(slot.layout, mesh),
        )
        for slot in (schedule.slots[i] for i in schedule.inputs)
    ]
    return jax.tree.unflatten(schedule.graph.in_tree, leaves)


def require_devices(mesh: Any) -> Mesh:
    """The mesh, if it has devices.

    Raises:
      MeshError: for an abstract one.
    """
    if isinstance(mesh, Mesh):
        return mesh
    raise MeshError(
        message(
            "this plan was made for an abstract mesh, which has no devices",
            f"got {mesh}",
            remedy="Plan again with a real mesh, such as tp.mesh(data=2, model=4).",
        )
    )


def planned_arguments(schedule: Schedule, args: Sequence[Any]) -> list[Any]:
    """Flat arguments of true or padded sizes.

    Raises:
      GraphError: for a wrong number or structure of arguments.
      SignatureError: for a wrong rank, size or dtype.
    """
    graph = schedule.graph
    leaves = flatten_arguments(graph, args)
    wrong: list[str] = []
    for node, leaf, slot in zip(graph.inputs, leaves, (schedule.slots[i] for i in schedule.inputs), strict=True):
        true, padded = node.results[0].shape, slot.layout.padded_shape(node.results[0].shape, schedule.mesh)
        got = type_of(leaf, f"argument `{node.name}` of `{graph.name}`")
        # Python numbers come as weakly typed arrays out of `jit`.
        weak = isinstance(leaf, bool | int | float | complex) or bool(getattr(leaf, "weak_type", False))
        if got.shape not in (true, padded) or not (weak or got.dtype == node.results[0].dtype):
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


def _padded(array: Any, shape: tuple[int, ...], mesh: Any) -> Any:
    if array.shape == shape:
        return array
    # Sizes that do not divide cannot arrive cut; padding on every device costs no exchange.
    array = _constrained(array, Layout.whole(array.ndim), mesh)
    for axis, size in enumerate(shape):
        array = pad_axis(array, axis, size)
    return array


def _placed(array: Any, layout: Layout, mesh: Any) -> Any:
    # Where axes are explicit, `shard_map` takes arrays only in the layouts that it names.
    return _constrained(array, layout, mesh) if _is_explicit(mesh) else array


def _cropped(array: Any, slot: Slot, mesh: Any) -> Any:
    layout = slot.layout
    for axis, size in enumerate(slot.type.shape):
        if array.shape[axis] != size and _is_explicit(mesh):
            layout = layout.with_cut(axis, None)
            array = _constrained(array, layout, mesh)
        array = crop_axis(array, axis, size)
    return array


def _without_padding_gradient(array: Any, slot: Slot, mesh: Any) -> Any:
    """The same array, through whose padding no gradient flows back."""
    if array.shape == slot.type.shape or not is_inexact(array.dtype):
        return array
    valid = functools.reduce(
        operator.and_,
        (jax.lax.broadcasted_iota("int32", array.shape, axis) < size for axis, size in enumerate(slot.type.shape)),
    )
    return jax.numpy.where(_placed(valid, slot.layout, mesh), array, jax.lax.stop_gradient(array))


def _constrained(array: Any, layout: Layout, mesh: Any) -> Any:
    move = jax.reshard if _is_explicit(mesh) else jax.lax.with_sharding_constraint
    return move(array, sharding(layout, mesh))


def _is_explicit(mesh: Any) -> bool:
    return AxisType.Explicit in (mesh.axis_types or ())
