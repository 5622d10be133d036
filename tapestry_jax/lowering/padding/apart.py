"""Padding beside operands that all rows share: what it holds is finite, and nothing of it goes back.

Nobody asks for what a kernel makes of padding, so that its cotangent is zero. But zero times an infinity is NaN, and
where rows share an operand, such as weights, that NaN would be added to what the rows come to. So such a kernel is
given numbers in the place of infinities and NaN in padding, and a cotangent of exactly zero, whatever is done with its
results; padding itself has no derivative (`pad.py`).

Enough where the slopes of a kernel are finite at finite operands. The others run on the rows that there are
(`valid.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.index_space.axis import Axis
from combinators.index_space.operand import Operand
from combinators.index_space.tensor_type import is_inexact
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import where_valid
from tapestry_jax.planning.geometry.layout import Cut

Cuts = Mapping[str, Cut]
Places = Sequence[Mapping[str, tuple[int, int]]]
"""For every leaf and dimension the axis that this is, and how many cells of the axis belong to one index."""


def shared_operands(shaped: Shaped, blocks: Sequence[Any], dim: str) -> list[bool]:
    """For every operand whether rows along `dim` have it in common, with a derivative: windows overlap, weights do."""
    return [
        operand.coordinate is None and is_inexact(block.dtype) and _place(operand, dim, shaped.sizes) is None
        for operand, block in zip(shaped.signature.operands, blocks, strict=True)
    ]


def apart(
    shaped: Shaped,
    cuts: Cuts,
    sizes: Mapping[str, int],
    here: Here,
    blocks: Sequence[Any],
    run: Callable[[list[Any]], list[Any]],
    dims: Sequence[str],
    places: Places,
) -> list[Any]:
    """What `run` makes of a box with padding along `dims`, of which nothing goes back to what rows share.

    Args:
      shaped: the operation.
      cuts: of its dimensions.
      sizes: of the index box of one device.
      here: the device and turn.
      blocks: of its operands.
      run: from blocks to leaves.
      dims: along which there is padding.
      places: of `dims` in these leaves.
    """
    valid = {dim: _valid(cuts[dim], shaped.sizes[dim], here) for dim in dims}
    operands: list[Any] = []
    for operand, block in zip(shaped.signature.operands, blocks, strict=True):
        own = {dim: _place(operand, dim, sizes) for dim in dims} if operand.coordinate is None else {}
        known = {dim: place for dim, place in own.items() if place is not None}
        operands.append(_apart(block, known, valid, sizes))
    return [
        jax.tree.map(lambda part, own=own: _apart(part, own, valid, sizes), leaf)
        for leaf, own in zip(run(operands), places, strict=True)
    ]


def _apart(
    block: Any,
    places: Mapping[str, tuple[int, int]],
    valid: Mapping[str, tuple[Any, Any]],
    sizes: Mapping[str, int],
) -> Any:
    """The block, finite and without a derivative where it is padding."""
    if not places:
        return block
    rows: Any = True
    for dim, (axis, unit) in places.items():
        low, high = valid[dim]
        index = lax.broadcasted_iota(jnp.int32, (block.shape[axis],), 0) // unit % sizes[dim]
        own = (index >= low) & (index < high)
        rows = own.reshape([-1 if at == axis else 1 for at in range(block.ndim)]) & rows
    return where_valid(rows, block)


def _valid(cut: Cut, size: int, here: Here) -> tuple[Any, Any]:
    """The first index of this device's box that the program has, and the one behind the last; int32 scalars."""
    window = cut.window
    least, end = (-window.before, size + window.after) if window is not None and window.wraps else (0, size)
    start = here.index(cut.axes) * cut.block + cut.low
    low = jnp.clip(least - start, 0, cut.extent)
    return low, jnp.maximum(jnp.clip(end - start, 0, cut.extent), low)


def _place(operand: Operand, dim: str, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """The axis of an operand along which its rows are those of `dim`, and the cells of an index; None without one."""
    for number, axis in enumerate(operand.axes):
        unit = _unit(axis, dim, sizes)
        if unit is not None:
            return number, unit
    return None


def _unit(axis: Axis, dim: str, sizes: Mapping[str, int]) -> int | None:
    names = [term.name for term in axis.terms]
    if axis.is_window or dim not in names:
        return None
    return math.prod(sizes[name] for name in names[names.index(dim) + 1 :])
