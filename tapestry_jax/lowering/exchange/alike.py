"""Slices of what is alike on all devices, whose gradients are gathered.

JAX would cast the value to a varying one and slice that; transposed, whole arrays that are zero but for one block are
added up over the devices. The blocks lie side by side, so that an all-gather puts them together for half the bytes on
the wire. JAX has no operation with this transpose, so here is a primitive of our own, by what JAX documents for those:
`linear_call` would do, but for `vmap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from jax import lax
from jax.interpreters import ad  # noqa: TID251 - the public place of the rules of primitives

from combinators.kernels.jaxprs import primitive_of
from tapestry_jax.lowering.exchange.collectives import gather_over
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import crop_axis, pad_axis
from tapestry_jax.planning.geometry.layout import Cut


def slice_alike(value: Any, axis: int, cut: Cut, here: Here) -> Any:
    """This device's block of an axis of a value that does not vary over the mesh axes of the cut.

    Args:
      value: the same on all devices along `cut.axes`.
      axis: which axis is cut.
      cut: in plain blocks; the last ones are padded by copies of the last cell, through which no gradient flows.
      here: the device.
    """
    return _slice_alike().bind(
        value, here.index(cut.axes), axis=axis, axes=cut.axes, block=cut.block, devices=here.size(cut.axes)
    )


def _sliced(value: Any, index: Any, *, axis: int, axes: tuple[str, ...], block: int, devices: int) -> Any:
    del axes
    whole = pad_axis(value, axis, block * devices)
    return lax.dynamic_slice_in_dim(whole, index * block, block, axis)


def _type(value: Any, index: Any, *, axis: int, axes: tuple[str, ...], block: int, devices: int) -> Any:
    del index, devices
    shape = (*value.shape[:axis], block, *value.shape[axis + 1 :])
    manual = value.manual_axis_type
    if manual.varying & set(axes):
        raise TypeError(f"a slice of equal copies over {axes} was given a value that varies over {manual.varying}")
    return value.update(shape=shape, manual_axis_type=manual.update(varying=manual.varying | set(axes)))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **how: Any) -> tuple[Any, Any]:
    (value, index), (tangent, _) = primals, tangents
    moved = _slice_alike().bind(ad.instantiate_zeros(tangent), index, **how)
    return _slice_alike().bind(value, index, **how), moved


def _transposed(cotangent: Any, value: Any, index: Any, *, axis: int, axes: tuple[str, ...], **how: Any) -> list[Any]:
    del index, how
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(value.aval), None]
    gathered = gather_over(cotangent, axis, axes, "invarying")
    return [crop_axis(gathered, axis, value.aval.shape[axis]), None]


def _batched(arguments: Sequence[Any], places: Sequence[Any], *, axis: int, **how: Any) -> tuple[Any, int]:
    (value, index), (place, _) = arguments, places
    moved = axis if axis < place else axis + 1
    return _slice_alike().bind(value, index, axis=moved, **how), place


@cache
def _slice_alike() -> Any:
    """The primitive with its rules, made when it is first needed."""
    return primitive_of("slice_alike", _sliced, types=_type, moved=_jvp, batched=_batched, back=_transposed)
