"""Where cells stand: shapes, axes, slices, padding, and the cells that indices name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from combinators.equations.elementwise import Primitive
from combinators.equations.indexing import assign, dynamic_slice, dynamic_update_slice, gather, scatter


def _broadcast_in_dim(aval: Any, x: Any, broadcast_dimensions: Sequence[int]) -> Any:
    shape = [1] * len(aval.shape)
    for axis, place in enumerate(broadcast_dimensions):
        shape[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(shape), aval.shape)


def _squeeze(aval: Any, x: Any, *, dimensions: Sequence[int]) -> Any:
    return x.reshape(aval.shape)


def _reshape(aval: Any, x: Any, dimensions: Sequence[int] | None = None) -> Any:
    return (x if dimensions is None else np.transpose(x, dimensions)).reshape(aval.shape)


def _transpose(aval: Any, x: Any, *, permutation: Sequence[int]) -> Any:
    return np.transpose(x, permutation)


def _rev(aval: Any, x: Any, *, dimensions: Sequence[int]) -> Any:
    return np.flip(x, tuple(dimensions))


def _concatenate(aval: Any, *xs: Any, dimension: int) -> Any:
    return np.concatenate(xs, dimension)


def _stack(aval: Any, *xs: Any, axis: int) -> Any:
    return np.stack(xs, axis)


def _split(aval: Any, x: Any, *, sizes: Sequence[int], axis: int) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _pad(aval: Any, x: Any, value: Any, *, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    for axis, (low, high, interior) in enumerate(padding_config):
        if interior and x.shape[axis] > 1:
            shape = list(x.shape)
            shape[axis] += (x.shape[axis] - 1) * interior
            spread = np.full(shape, value, x.dtype)
            spread[(slice(None),) * axis + (slice(None, None, interior + 1),)] = x
            x = spread
        widths = [(0, 0)] * x.ndim
        widths[axis] = (max(low, 0), max(high, 0))
        x = np.pad(x, widths, constant_values=value)
        stop = x.shape[axis] + min(high, 0)
        x = x[(slice(None),) * axis + (slice(-min(low, 0), stop),)]
    return x


def _slice(aval: Any, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or (1,) * x.ndim
    return x[tuple(slice(*each) for each in zip(start_indices, limit_indices, steps, strict=True))]


def _iota(aval: Any, dimension: int) -> Any:
    shape = [1] * len(aval.shape)
    shape[dimension] = aval.shape[dimension]
    return np.broadcast_to(np.arange(aval.shape[dimension]).astype(aval.dtype).reshape(shape), aval.shape)


MOVEMENTS: dict[str, Primitive] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "rev": _rev,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "pad": _pad,
    "slice": _slice,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "iota": _iota,
    "gather": gather,
    "scatter": scatter(assign),
    "scatter-add": scatter(np.add.at),
    "scatter-mul": scatter(np.multiply.at),
    "scatter-min": scatter(np.minimum.at),
    "scatter-max": scatter(np.maximum.at),
}
