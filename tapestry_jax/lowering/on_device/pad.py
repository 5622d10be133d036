"""Padding to whole blocks: copies of the last valid row, since zeros turn `x / norm(x)` into NaN gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.geometry.layout import Cut


def pad_axis(array: Any, axis: int, size: int) -> Any:
    """Extend one axis to `size` cells by copies of its last one."""
    return _pad(array, axis, (0, size - array.shape[axis]))


def pad_front(array: Any, axis: int, size: int) -> Any:
    """Extend one axis to `size` cells by copies of its first one, in front of it."""
    return _pad(array, axis, (size - array.shape[axis], 0))


def _pad(array: Any, axis: int, missing: tuple[int, int]) -> Any:
    if max(missing) <= 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = missing
    return jnp.pad(array, widths, mode="edge" if array.shape[axis] else "constant")


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
