"""Padding to whole blocks: copies of the last valid row, since zeros turn `x / norm(x)` into NaN gradients.

What of them is no number is one, and nothing goes back through them: zero times an infinity is NaN.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.planning.geometry.layout import Cut


def pad_axis(array: Any, axis: int, size: int) -> Any:
    """Extend one axis to `size` cells by copies of its last one, which have no derivative."""
    return _pad(array, axis, (0, size - array.shape[axis]))


def pad_front(array: Any, axis: int, size: int) -> Any:
    """Extend one axis to `size` cells by copies of its first one, in front of it, which have no derivative."""
    return _pad(array, axis, (size - array.shape[axis], 0))


def _pad(array: Any, axis: int, missing: tuple[int, int]) -> Any:
    if max(missing) <= 0:
        return array
    ends = (0, array.shape[axis] - 1)
    copies = [_copied(array, axis, at, count) for at, count in zip(ends, missing, strict=True)]
    return lax.concatenate([*copies[:1] * (missing[0] > 0), array, *copies[1:] * (missing[1] > 0)], axis)


def _copied(array: Any, axis: int, at: int, count: int) -> Any:
    """Copies of one cell of an axis; zeros where there is none."""
    shape = list(array.shape)
    shape[axis] = max(count, 0)
    if not array.shape[axis]:
        return vary(jnp.zeros(shape, array.dtype), varying_axes(array))
    return jnp.broadcast_to(lax.stop_gradient(finite(lax.slice_in_dim(array, at, at + 1, axis=axis))), shape)


def where_valid(valid: Any, array: Any) -> Any:
    """The array where it is valid; elsewhere its numbers, and ones for what is none, without a derivative."""
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    axes = sorted(varying_axes(valid) | varying_axes(array))
    return jnp.where(vary(valid, axes), vary(array, axes), vary(lax.stop_gradient(finite(array)), axes))


def finite(array: Any) -> Any:
    """The array with ones in the place of what is no number, or infinite."""
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    return jnp.where(jnp.isfinite(array), array, jnp.ones((), array.dtype))


def crop_axis(array: Any, axis: int, size: int) -> Any:
    """Keep the first `size` cells of one axis."""
    return array if array.shape[axis] == size else lax.slice_in_dim(array, 0, size, axis=axis)


def valid_count(cut: Cut, size: int, here: Here) -> Any:
    """How many cells of this device's block (in this turn) are not padding; int32 scalar."""
    return jnp.clip(size - here.index(cut.axes) * cut.block, 0, cut.block)


def valid_counts(cut: Cut, size: int, devices: int) -> tuple[int, ...]:
    """The counts that occur on some device, largest first: at most a full, a partial and an empty block."""
    counts = {min(max(size - device * cut.block, 0), cut.block) for device in range(devices)}
    return tuple(sorted(counts, reverse=True))
