"""Collectives that differentiate and pass the check of varying axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.extrema import Extremum, attains
from tapestry_jax.lowering.on_device.varying import received, vary
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


def max_over(value: Any, axes: tuple[str, ...]) -> Any:
    """The maximum over mesh axes; NaN wins. Its derivative goes to the devices that attain it, in equal shares."""
    return extremum_over("max", axes, value, jnp.ones_like(value, jnp.int32))


def min_over(value: Any, axes: tuple[str, ...]) -> Any:
    """The minimum over mesh axes; NaN wins. Its derivative goes to the devices that attain it, in equal shares."""
    return extremum_over("min", axes, value, jnp.ones_like(value, jnp.int32))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def extremum_over(kind: Extremum, axes: tuple[str, ...], value: Any, count: Any) -> Any:
    """The extremum over mesh axes of what `count` elements of every device attain; NaN wins.

    All elements that attain it have equal shares of its derivative.

    Args:
      kind: which.
      axes: mesh axes, over which both arrays vary.
      value: of this device.
      count: int32 of the same shape.
    """
    if kind == "min" and jnp.issubdtype(value.dtype, jnp.inexact):
        return -extremum_over("max", axes, -value, count)
    whole = {jnp.dtype(jnp.float32): jnp.int32, jnp.dtype(jnp.float64): jnp.int64}.get(value.dtype)
    if whole is None:
        return (lax.pmax if kind == "max" else lax.pmin)(value, axes)
    # Collectives need not keep NaN, and on CPUs they do not. Among integers in the order of floats it is the largest.
    largest = jnp.iinfo(whole).max
    key = _ordered(lax.bitcast_convert_type(value, whole), largest)
    key = lax.pmax(jnp.where(value != value, largest, key), axes)
    return lax.bitcast_convert_type(_ordered(key, largest), value.dtype)


def _ordered(bits: Any, largest: int) -> Any:
    """The bits of floats as integers in their order; and back."""
    return jnp.where(bits < 0, bits ^ largest, bits)


@extremum_over.defjvp
def _(kind: Extremum, axes: tuple[str, ...], primals: Any, tangents: Any) -> tuple[Any, Any]:
    # `pmax` has no derivative of its own. The count is summed only where a derivative is taken.
    value, count = primals
    # Kept by loops, which would send it again where they compute again who attained it.
    top = received(extremum_over(kind, axes, value, count))
    # Of as many bytes as the value. Of those with two, that which holds large counts.
    sent = jnp.bfloat16 if value.dtype == jnp.float16 else value.dtype
    mine = jnp.where(attains(value, vary(top, axes)), count, 0).astype(sent)
    everyone = lax.psum(mine, axes)
    share = mine / vary(jnp.where(everyone == 0, 1, everyone), axes)
    return top, lax.psum(tangents[0] * share.astype(value.dtype), axes)


def any_over(value: Any, axes: tuple[str, ...]) -> Any:
    """Whether any device holds a true cell."""
    return lax.pmax(value.astype(jnp.uint8), axes).astype(value.dtype)


def all_over(value: Any, axes: tuple[str, ...]) -> Any:
    """Whether all devices hold a true cell."""
    return lax.pmin(value.astype(jnp.uint8), axes).astype(value.dtype)


def sum_over(value: Any, axes: tuple[str, ...]) -> Any:
    """The sum over mesh axes."""
    return lax.psum(value, axes)


def gather_over(value: Any, axis: int, axes: tuple[str, ...], to: str) -> Any:
    """The blocks of an axis on all devices, side by side; `to` as in `lax.all_gather`."""
    if not jnp.iscomplexobj(value):
        return lax.all_gather(value, axes, axis=axis, tiled=True, to=to)
    # XLA's CPU backend gathers along the outermost axis in memory, an order in which its FFT then refuses to run.
    moved = lax.all_gather(jnp.moveaxis(value, axis, 0), axes, axis=0, tiled=True, to=to)
    return jnp.moveaxis(moved, 0, axis)


def permute_over(
    value: Any,
    axes: tuple[str, ...],
    pairs: Sequence[tuple[int, int]],
    mesh: MeshShape,
    mark: Callable[[Any], Any] = received,
) -> Any:
    """Send along pairs of positions; positions count along `axes`, the outermost first.

    `lax.ppermute` counts in the order of the mesh, in whatever order its axes are listed. `mark` says of what came what
    it is where something is computed again.
    """
    ordered = tuple(name for name in mesh.names if name in axes)
    place = [_in_mesh_order(position, axes, ordered, mesh) for position in range(mesh.size(axes))]
    return mark(lax.ppermute(value, ordered, [(place[source], place[target]) for source, target in pairs]))


def _in_mesh_order(position: int, axes: tuple[str, ...], ordered: tuple[str, ...], mesh: MeshShape) -> int:
    coordinates: dict[str, int] = {}
    for axis in reversed(axes):
        position, coordinates[axis] = divmod(position, mesh.size((axis,)))
    index = 0
    for axis in ordered:
        index = index * mesh.size((axis,)) + coordinates[axis]
    return index


NATIVE = {"sum": sum_over, "max": max_over, "min": min_over, "or": any_over, "and": all_over}
