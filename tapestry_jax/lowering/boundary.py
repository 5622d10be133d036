"""Where the program meets arrays that users hold: bringing them into the planned layouts, padded storage, and back."""

from __future__ import annotations

import functools
import operator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.lowering.exchange.convert import convert
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.geometry.layout import Layout, true_layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.way import layout_changes
from tapestry_jax.planning.scheduling.schedule import Slot


def spec(layout: Layout) -> PartitionSpec:
    """The layout as JAX writes it."""
    return PartitionSpec(*(None if cut is None else cut.axes for cut in layout.cuts))


def sharding(layout: Layout, mesh: Any) -> NamedSharding:
    """The layout on the devices of a mesh."""
    return NamedSharding(mesh, spec(layout))


def placed(array: Any, slot: Slot, mesh: Any) -> Any:
    """An array of true sizes, or padded where the plan stores it so, on the devices where the plan wants it.

    Args:
      array: an array, a NumPy array or a number; traced ones are as welcome.
      slot: its type and its layout.
      mesh: with devices.
    """
    layout = slot.layout
    if isinstance(array, bool | int | float | complex):
        array = jnp.asarray(array, slot.type.dtype)
    if array.shape != layout.padded_shape(slot.type.shape, MeshShape.of(mesh)):
        return padded(array, slot, mesh)
    return _moved(array, sharding(layout, mesh))


def padded(array: Any, slot: Slot, mesh: Any) -> Any:
    """An array of true sizes in the padded pieces of a slot, copies of the last row behind it."""
    true = true_layout(slot.layout, slot.type.shape, MeshShape.of(mesh))
    moved = _moved(array, sharding(true, mesh))
    return moved if true == slot.layout else _mover(slot.type.shape, true, slot.layout, mesh)(moved)


def cropped(array: Any, slot: Slot, mesh: Any) -> Any:
    """An array in the padded pieces of a slot in its true sizes, stored in the nearest layout that divides them."""
    true = true_layout(slot.layout, slot.type.shape, MeshShape.of(mesh))
    moved = _moved(array, sharding(slot.layout, mesh))
    return moved if true == slot.layout else _mover(slot.type.shape, slot.layout, true, mesh)(moved)


def _moved(array: Any, target: NamedSharding) -> Any:
    if not _is_on_devices(array):
        return jax.device_put(array, target)
    if array.sharding.is_equivalent_to(target, array.ndim):
        return array
    # JAX lets a whole array share its memory with what it was put from, which is lost where the new one is donated.
    shared = target.shard_shape(array.shape) == array.shape
    return jax.device_put(array.copy() if shared else array, target)


def _is_on_devices(array: Any) -> bool:
    """Whether an array lies somewhere: those on the host do not, and traced ones cannot say."""
    try:
        return array.committed is not None
    except (AttributeError, jax.errors.ConcretizationTypeError):
        return False


@lru_cache(maxsize=1024)
def _mover(shape: tuple[int, ...], source: Layout, target: Layout, mesh: Any) -> Any:
    """A change of layout as a program of its own, with the collectives that such a change has inside of plans."""
    axes = MeshShape.of(mesh)
    changes = layout_changes(shape, source, target, target.axes, axes)

    def on_device(piece: Any) -> Any:
        return convert(piece, changes, Here(axes.axes))

    moved = jax.shard_map(on_device, mesh=mesh, in_specs=spec(source), out_specs=spec(target), check_vma=True)
    return jax.jit(moved, in_shardings=sharding(source, mesh), out_shardings=sharding(target, mesh))


def without_padding_gradient(piece: Any, slot: Slot, here: Here) -> Any:
    """The same piece of a result, through whose padding no gradient flows back."""
    if slot.layout.padded_shape(slot.type.shape, here) == slot.type.shape or not is_inexact(piece.dtype):
        return piece
    valid = functools.reduce(
        operator.and_,
        (
            lax.broadcasted_iota(jnp.int32, piece.shape, axis) < size - here.index(cut.axes) * cut.block
            for axis, (size, cut) in enumerate(zip(slot.type.shape, slot.layout.cuts, strict=True))
            if cut is not None
        ),
    )
    return jnp.where(valid, piece, lax.stop_gradient(piece))
