"""Running a change of layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from tapestry_jax.lowering.exchange.alike import slice_alike
from tapestry_jax.lowering.exchange.collectives import any_over, gather_over, sum_over
from tapestry_jax.lowering.exchange.halo import exchange_drifting, exchange_neighbours
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import crop_axis, pad_axis
from tapestry_jax.lowering.on_device.stripes import deal, in_order, stripe
from tapestry_jax.lowering.on_device.varying import received, vary
from tapestry_jax.planning.geometry.changes import Cast, Change, Deal, Exchange, Gather, Overlap, Reorder, Share, Slice
from tapestry_jax.planning.geometry.drift import Drift


def convert(value: Any, changes: Sequence[Change], here: Here, *, kept: bool = True) -> Any:
    """Bring one device's piece from one layout to another; `kept` marks what collectives bring as received."""
    mark = received if kept else _unmarked
    for change in changes:
        match change:
            case Cast(axes, order):
                value = vary(value, axes, order)
            case Slice(axis, cut, size) if cut.striped:
                value = stripe(value, axis, cut, size, here)
            case Slice(axis, cut, _, alike) if alike:
                value = slice_alike(value, axis, cut, here)
            case Slice(axis, cut, _):
                value = pad_axis(value, axis, cut.block * (here.size(cut.axes) - 1) + cut.extent)
                start = here.index(cut.axes) * cut.block
                value = lax.dynamic_slice_in_dim(value, start, cut.extent, axis)
            case Gather(axis, axes, size, varying):
                value = mark(gather_over(value, axis, axes, "varying" if varying else "invarying"))
                value = crop_axis(value, axis, min(size, value.shape[axis]))
            case Exchange(source, target, size, _, cut):
                value = pad_axis(value, target, cut.block * here.size(cut.axes))
                value = mark(lax.all_to_all(value, cut.axes, target, source, tiled=True))
                value = crop_axis(value, source, size)
            case Share(axes):
                value = mark(_of_last(value, axes, here))
            case Deal(axis, cut):
                value = mark(deal(value, axis, cut, here))
            case Reorder(axis, cut, size):
                value = in_order(value, axis, cut, size)
            case Overlap(axis, _, cut, _):
                exchange = change.exchange(here)
                if isinstance(exchange, Drift):
                    value = exchange_drifting(value, axis, exchange, cut.extent, cut.axes, here)
                else:
                    value = exchange_neighbours(value, axis, exchange, cut.axes, here)
    return value


def _of_last(value: Any, axes: tuple[str, ...], here: Here) -> Any:
    is_last = here.index(axes) == here.size(axes) - 1
    kept = jnp.where(is_last, value, jnp.zeros((), value.dtype))
    return any_over(kept, axes) if kept.dtype == jnp.bool_ else sum_over(kept, axes)


def _unmarked(value: Any) -> Any:
    return value
