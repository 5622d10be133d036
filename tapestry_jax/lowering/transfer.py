"""Whole arguments and results: their shardings, onto the devices, in and out of padded storage, and to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from combinators.errors import PlanError, message
from combinators.index_space.tensor_type import is_key, keys_again, words_of
from tapestry_jax.lowering.boundary import cropped, padded, placed, sharding
from tapestry_jax.lowering.compiled import planned_arguments
from tapestry_jax.planning.scheduling.schedule import Schedule, Slot


def input_shardings(schedule: Schedule, mesh: Any) -> Any:
    """In the structure of the arguments, for arrays of true sizes."""
    found = [_input_sharding(slot, mesh) for slot in _slots(schedule, schedule.inputs)]
    return jax.tree.unflatten(schedule.graph.in_tree, found)


def output_shardings(schedule: Schedule, mesh: Any) -> Any:
    """In the structure of the result."""
    found = [sharding(slot.layout, mesh) for slot in _slots(schedule, schedule.outputs)]
    return jax.tree.unflatten(schedule.graph.out_tree, found)


def put(schedule: Schedule, mesh: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments on the devices, in the planned layouts.

    Raises:
      PlanError: for random keys whose words a plan stores in pieces.
      SignatureError: for wrong ranks, sizes or dtypes.
    """
    leaves = planned_arguments(schedule, args)
    slots = _slots(schedule, schedule.inputs)
    given, structure = jax.tree.flatten(tuple(args))
    _check_keys(schedule, slots, given)
    moved = [placed(leaf, slot, mesh) for leaf, slot in zip(leaves, slots, strict=True)]
    # Random keys stay keys, so that a module's state may be put back into it.
    return jax.tree.unflatten(structure, list(map(keys_again, moved, given)))


def _check_keys(schedule: Schedule, slots: Sequence[Slot], given: Sequence[Any]) -> None:
    """Refuse typed random keys whose words lie in pieces: JAX holds each key whole."""
    for node, slot, leaf in zip(schedule.graph.inputs, slots, given, strict=True):
        cut = slot.layout.cuts[-1] if isinstance(leaf, jax.Array) and is_key(leaf.dtype) else None
        if cut is not None:
            axis = slot.type.names[-1]
            raise PlanError(
                message(
                    f"plan.put cannot lay out `{node.name}`",
                    "it holds typed random keys, and the plan stores the words of each key in pieces",
                    f"its words are the axis `{axis}`, over {', '.join(cut.axes)}",
                    remedy=f"Leave `{axis}` out of inputs=, or pass jax.random.key_data of the keys.",
                )
            )


def pad(schedule: Schedule, mesh: Any, tree: Any, argument: int) -> Any:
    """What has the structure of an argument, from true sizes to padded pieces.

    Raises:
      PlanError: for another structure or other sizes.
    """
    slots = _slots_of(schedule, argument)
    return _moved(tree, schedule, mesh, argument, "pad", (_true(slots), _stored(slots, schedule)), padded)


def crop(schedule: Schedule, mesh: Any, tree: Any, argument: int) -> Any:
    """The way back.

    Raises:
      PlanError: for another structure or other sizes.
    """
    slots = _slots_of(schedule, argument)
    return _moved(tree, schedule, mesh, argument, "crop", (_stored(slots, schedule), _true(slots)), cropped)


def take(schedule: Schedule, result: Any) -> Any:
    """A result on the host, in true sizes.

    Raises:
      PlanError: for other arrays, or other sizes.
    """
    leaves, tree = jax.tree.flatten(result)
    slots = _slots(schedule, schedule.outputs)
    if len(leaves) != len(slots):
        raise PlanError(
            message(
                f"plan.take was given {len(leaves)} arrays; the program returns {len(slots)}",
                remedy="Pass what plan.compile()(...) returned.",
            )
        )
    wrong: list[str] = []
    for (name, _), leaf, slot, stored in zip(
        schedule.graph.outputs, leaves, slots, _stored(slots, schedule), strict=True
    ):
        if np.shape(leaf) != stored:
            also = f" padded to {stored}" if stored != slot.type.shape else ""
            wrong.append(f"{name}: expected {slot.type}{also}, got shape {np.shape(leaf)}")
    if wrong:
        raise PlanError(
            message(
                "plan.take was given other sizes than the program returns",
                *wrong,
                remedy="Pass what plan.compile()(...) returned.",
            )
        )
    true = [tuple(map(slice, shape)) for shape in _true(slots)]
    return jax.tree.unflatten(tree, [np.asarray(leaf)[box] for leaf, box in zip(leaves, true, strict=True)])


Shapes = list[tuple[int, ...]]


def _moved(
    tree: Any,
    schedule: Schedule,
    mesh: Any,
    argument: int,
    name: str,
    shapes: tuple[Shapes, Shapes],
    move: Callable[[Any, Slot, Any], Any],
) -> Any:
    """Every leaf whose shape before and after differ is moved; `name` is that of the method, for messages."""
    before, after = shapes
    leaves, structure = jax.tree.flatten(tree)
    found = [np.shape(words_of(leaf)) for leaf in leaves]
    if found != before:
        wrong = [f"expected {a}, got {b}" for a, b in zip(before, found, strict=False) if a != b]
        raise PlanError(
            message(
                f"plan.{name} was given other arrays than the argument {argument} of `{schedule.graph.name}` has",
                f"it has {len(before)}, got {len(found)}",
                *wrong[:4],
                remedy="Pass what has the structure of that argument, or name another: argument=1.",
            )
        )
    slots = _slots_of(schedule, argument)
    moved = [
        leaf if a == b else move(leaf, slot, mesh)
        for leaf, slot, a, b in zip(leaves, slots, before, after, strict=True)
    ]
    return jax.tree.unflatten(structure, moved)


def _input_sharding(slot: Slot, mesh: Any) -> NamedSharding:
    # What lies whole may be the words of random keys: typed keys have an axis less, and take no more names.
    if slot.type.dtype == np.uint32 and not any(slot.layout.cuts):
        return NamedSharding(mesh, PartitionSpec())
    return sharding(slot.layout, mesh)


def _slots(schedule: Schedule, numbers: Sequence[int]) -> list[Slot]:
    return [schedule.slots[number] for number in numbers]


def _slots_of(schedule: Schedule, argument: int) -> list[Slot]:
    numbers = jax.tree.unflatten(schedule.graph.in_tree, list(schedule.inputs))
    return _slots(schedule, jax.tree.leaves(numbers[argument]))


def _true(slots: Sequence[Slot]) -> Shapes:
    return [slot.type.shape for slot in slots]


def _stored(slots: Sequence[Slot], schedule: Schedule) -> Shapes:
    return [slot.layout.padded_shape(slot.type.shape, schedule.mesh) for slot in slots]
