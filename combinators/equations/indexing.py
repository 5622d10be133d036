"""Primitives that index: slices at places that are found, gathers and scatters, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np


def _starts(shape: Sequence[int], sizes: Sequence[int], indices: Sequence[Any]) -> tuple[slice, ...]:
    starts = [min(max(int(i), 0), n - size) for n, size, i in zip(shape, sizes, indices, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))


def dynamic_slice(aval: Any, x: Any, *indices: Any, slice_sizes: Sequence[int]) -> Any:
    """A box that is moved inside where it lies outside."""
    return x[_starts(x.shape, slice_sizes, indices)]


def dynamic_update_slice(aval: Any, x: Any, update: Any, *indices: Any) -> Any:
    """The operand with a box of it replaced, moved inside where it lies outside."""
    whole = np.array(x)
    whole[_starts(x.shape, update.shape, indices)] = update
    return whole


def _indices(shape: Sequence[int], starts: Any, sizes: Sequence[int], dims: Sequence[int]) -> list[Any]:
    """For each axis the cells that windows of `sizes` at `starts` `(windows, dims)` read, `(windows, *sizes)`."""
    found: list[Any] = []
    for axis, size in enumerate(sizes):
        start = starts[:, dims.index(axis)] if axis in dims else np.zeros(len(starts), np.int64)
        cells = start.astype(np.int64)[:, None] + np.arange(size)
        found.append(cells.reshape(len(starts), *[size if other == axis else 1 for other in range(len(sizes))]))
    return found


def _windows(indices: Any, operand: Any, sizes: Sequence[int], dims: Sequence[int], batching: Any) -> Any:
    """Starts along all indexed axes, `(windows, dims)`; the shape of the windows; the axes."""
    shape = indices.shape[:-1]
    starts, axes = indices.reshape(-1, indices.shape[-1]), list(dims)
    for axis, of_indices in zip(*batching, strict=True):
        own = np.broadcast_to(np.expand_dims(np.arange(shape[of_indices]), _but(of_indices, len(shape))), shape)
        starts, axes = np.concatenate([starts, own.reshape(-1, 1)], 1), [*axes, axis]
    return starts.astype(np.int64), shape, axes


def _but(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(other for other in range(rank) if other != axis)


def _placed(starts: Any, axes: Sequence[int], operand: Any, sizes: Sequence[int]) -> tuple[Any, Any]:
    """Starts inside of the operand, and which windows lay there from the beginning."""
    room = np.array([operand.shape[axis] - sizes[axis] for axis in axes], np.int64)
    inside = np.all((starts >= 0) & (starts <= room), 1) if len(axes) else np.ones(len(starts), bool)
    clipped = np.clip(starts, 0, np.maximum(room, 0)) if len(axes) else starts
    return clipped, inside


def gather(
    aval: Any,
    x: Any,
    indices: Any,
    *,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any,
    fill_value: Any,
) -> Any:
    """Windows of an operand, at indices."""
    numbers = dimension_numbers
    batching = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    starts, shape, axes = _windows(indices, x, slice_sizes, numbers.start_index_map, batching)
    starts, inside = _placed(starts, axes, x, slice_sizes)
    if x.size == 0:
        taken = np.zeros((len(starts), *slice_sizes), x.dtype)
    else:
        taken = x[tuple(_indices(x.shape, starts, slice_sizes, axes))]
    if "FILL" in str(mode) and not inside.all():
        inexact = jnp.issubdtype(x.dtype, jnp.inexact)
        fill = fill_value if fill_value is not None else np.nan if inexact else _extreme(x.dtype)
        taken = np.where(inside.reshape(-1, *[1] * len(slice_sizes)), taken, np.asarray(fill).astype(x.dtype))
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [size for axis, size in enumerate(slice_sizes) if axis not in gone]
    taken = taken.reshape((*shape, *kept))
    behind = list(range(len(shape), taken.ndim))
    ahead = iter(range(len(shape)))
    place = {axis: behind[number] for number, axis in enumerate(numbers.offset_dims)}
    return np.transpose(taken, [place[axis] if axis in place else next(ahead) for axis in range(taken.ndim)])


def _extreme(dtype: Any) -> Any:
    if dtype == np.bool_:
        return True
    known = np.iinfo(dtype)
    return known.max if known.min == 0 else known.min


def scatter(update: Callable[[Any, Any, Any], None]) -> Callable[..., Any]:
    """The primitive that merges windows into an operand, at indices: `update(whole, cells, values)`."""

    def run(
        aval: Any,
        x: Any,
        indices: Any,
        updates: Any,
        *,
        dimension_numbers: Any,
        mode: Any,
        update_jaxpr: Any,
        update_consts: Any,
    ) -> Any:
        if update is assign and update_jaxpr is not None:
            # A function of users': `x.at[i].apply(f)` is this primitive, too.
            return NotImplemented
        numbers = dimension_numbers
        gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        window = iter(updates.shape[axis] for axis in numbers.update_window_dims)
        sizes = [1 if axis in gone else next(window) for axis in range(x.ndim)]
        batching = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
        starts, _shape, axes = _windows(indices, x, sizes, numbers.scatter_dims_to_operand_dims, batching)
        starts, inside = _placed(starts, axes, x, sizes)
        # Where indices are promised to lie inside, XLA still drops those that do not; gathers clip them.
        inside = inside | ("CLIP" in str(mode))
        order = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
        moved = np.transpose(updates, [*order, *numbers.update_window_dims]).reshape(len(starts), *sizes)
        whole = np.array(x)
        cells = [np.broadcast_to(c, moved.shape)[inside] for c in _indices(x.shape, starts, sizes, axes)]
        update(whole, tuple(cells), moved[inside])
        return whole

    return run


def assign(whole: Any, cells: Any, values: Any) -> None:
    """The last value wins."""
    whole[cells] = values
