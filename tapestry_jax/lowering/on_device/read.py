"""What one device's index box reads: coordinates, windows, and the valid part of padded blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.index_space.axis import Axis
from combinators.index_space.boundary import OWN
from combinators.index_space.extent import axis_extent
from combinators.index_space.operand import Operand
from combinators.operations.execute import axis_modes, read_axis, together
from combinators.operations.shaped import Shaped, block_shape
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import pad_axis, pad_front
from tapestry_jax.lowering.on_device.stripes import cells_at
from tapestry_jax.lowering.on_device.varying import vary
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.scheduling.reads import overlapping_term

Cuts = Mapping[str, Cut]


def coordinates(size: int, cut: Cut | None, here: Here) -> Any:
    """Global coordinates of this device's indices, int32; those outside of the dimension repeat the nearest one."""
    if cut is None:
        return jnp.arange(size, dtype=jnp.int32)
    start = here.index(cut.axes) * cut.block + cut.low
    places = jnp.clip(start + jnp.arange(cut.extent, dtype=jnp.int32), 0, size - 1)
    return cells_at(places, cut, size) if cut.striped else places


def read_blocks(
    shaped: Shaped, cuts: Cuts, sizes: Mapping[str, int], here: Here, axes: frozenset[str], arrays: Sequence[Any]
) -> list[Any]:
    """The kernel's operands on this device, all varying over `axes`."""
    remaining = iter(arrays)
    blocks: list[Any] = []
    for operand, modes in zip(shaped.signature.operands, axis_modes(shaped), strict=True):
        if operand.coordinate is not None:
            block = coordinates(shaped.sizes[operand.coordinate], cuts.get(operand.coordinate), here)
        else:
            block = _read(operand, next(remaining), shaped, cuts, sizes, here, modes)
        blocks.append(vary(block, sorted(axes)))
    return blocks


def _read(
    operand: Operand,
    array: Any,
    shaped: Shaped,
    cuts: Cuts,
    sizes: Mapping[str, int],
    here: Here,
    modes: Sequence[str],
) -> Any:
    for number, (axis, mode) in enumerate(zip(operand.axes, modes, strict=True)):
        # Where a window overlaps its neighbours', the exchange has brought what its block reads.
        if axis.is_window and overlapping_term(axis, cuts) is None:
            array = _read_window(axis, number, array, shaped, cuts, sizes, here, mode)
    exchanged = any(overlapping_term(axis, cuts) is not None for axis in operand.axes)
    return together(array) if exchanged else array


def _read_window(
    axis: Axis,
    number: int,
    array: Any,
    shaped: Shaped,
    cuts: Cuts,
    sizes: Mapping[str, int],
    here: Here,
    mode: str,
) -> Any:
    """The cells that this device's box reads of an axis that it holds whole."""
    low, high = axis_extent(axis, shaped.sizes)
    array = read_axis(array, number, low, max(high, low), mode)
    cut_terms = [term for term in axis.terms if term.name in cuts]
    if not cut_terms:
        return array
    padded = dict(shaped.sizes)
    for term in cut_terms:
        padded[term.name] = cuts[term.name].block * here.size(cuts[term.name].axes)
    # A dimension that runs backwards has its padding in front.
    least, end = axis_extent(axis, padded)
    array = pad_axis(array, number, end - low)
    array = pad_front(array, number, end - least)
    local_low, local_high = axis_extent(axis, dict(sizes))
    start: Any = local_low - least
    for term in cut_terms:
        cut = cuts[term.name]
        start = start + here.index(cut.axes) * (cut.block * term.coefficient)
    return lax.dynamic_slice_in_dim(array, start, local_high - local_low, number)


def crop_blocks(
    shaped: Shaped,
    blocks: Sequence[Any],
    sizes: Mapping[str, int],
    inner: Mapping[str, int],
    lows: Mapping[str, int] = MappingProxyType({}),
) -> list[Any]:
    """The blocks that a smaller index box reads.

    Args:
      shaped: the operation.
      blocks: what a box of `sizes` reads.
      sizes: of the dimensions in these blocks.
      inner: of the dimensions in the smaller box.
      lows: where it begins, of dimensions along which it does not begin where these blocks do.
    """
    cropped: list[Any] = []
    for operand, block, modes in zip(shaped.signature.operands, blocks, axis_modes(shaped), strict=True):
        if operand.coordinate is not None:
            low = lows.get(operand.coordinate, 0)
            cropped.append(block[low : low + inner[operand.coordinate]])
        else:
            shape = block_shape(operand, dict(inner))
            # Where a dimension runs backwards, its first indices read the last cells.
            starts = [
                axis_extent(axis, inner)[0] - axis_extent(axis, sizes)[0] + _further(axis, sizes, lows)
                for axis in operand.axes
            ]
            ends = [low + size for low, size in zip(starts, shape, strict=True)]
            for at, mode in enumerate(modes):
                # What its kernel answers for is no part of the block.
                starts[at], ends[at] = (0, block.shape[at]) if mode == OWN else (starts[at], ends[at])
            cropped.append(lax.slice(block, starts, ends))
    return cropped


def _further(axis: Axis, sizes: Mapping[str, int], lows: Mapping[str, int]) -> int:
    """By how many cells of an axis the first index of a box is further on."""
    if axis.kind == "composite":
        return lows.get(axis.terms[0].name, 0) * math.prod(sizes[term.name] for term in axis.terms[1:])
    return sum(term.coefficient * lows.get(term.name, 0) for term in axis.terms)
