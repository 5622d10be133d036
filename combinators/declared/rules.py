"""What primitives that move, merge or make cells do with the dimensions of a signature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from combinators.declared.flow import OTHER, POSITION, Flow, Order, Tag, dims_of, joined, ordered
from combinators.kernels.regrouped import same_cells

_REDUCTION_NAMES = "argmax argmin reduce reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor"
REDUCTIONS = frozenset(_REDUCTION_NAMES.split())
# The most cells of an axis whose order is written down.
LONGEST = 1 << 13
# How JAX shows the type of keys of Threefry.
_THREEFRY = "key<fry>"
CUMULATIVE = frozenset({"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"})


def _reduction(equation: Any, flows: list[Flow]) -> list[Flow]:
    name, params = equation.primitive.name, equation.params
    gone = set(params["dimensions"] if name == "reduce" else params["axes"])
    operands = [flow for flow in flows if len(flow.axes) == len(flows[0].axes)]
    whole = joined(operands, len(flows[0].axes), name).reading([flows[0].axes[axis] for axis in gone], name)
    left = whole.along(tag for axis, tag in enumerate(whole.axes) if axis not in gone)
    return [left for _ in equation.outvars]


def _broadcast(equation: Any, flows: list[Flow]) -> list[Flow]:
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    axes: list[Tag] = [None] * len(shape)
    spread: list[Tag] = []
    for own, place in enumerate(places):
        if equation.invars[0].aval.shape[own] == shape[place]:
            axes[place] = flows[0].axes[own]
        else:
            spread.append(flows[0].axes[own])
    return [flows[0].picking(spread).along(axes)]


def _reshape(equation: Any, flows: list[Flow]) -> list[Flow] | None:
    old, new = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    if 0 in old or equation.params.get("dimensions") is not None:
        return None
    single = [tag for tag, size in zip(flows[0].axes, old, strict=True) if size == 1]
    flow, axes = flows[0].picking(single), list[Tag]([None] * len(new))
    for left, right in same_cells(old, new):
        tags = {flow.axes[axis] for axis in left}
        if len(left) == len(right) == 1:
            axes[right[0]] = tags.pop()
        elif tags - {None}:
            flow = flow.losing(tags)
            for axis in right:
                axes[axis] = OTHER
    return [flow.along(axes)]


def _transpose(equation: Any, flows: list[Flow]) -> list[Flow]:
    return [flows[0].along(flows[0].axes[axis] for axis in equation.params["permutation"])]


def _squeeze(equation: Any, flows: list[Flow]) -> list[Flow]:
    rank = len(flows[0].axes)
    gone = {axis % rank for axis in equation.params["dimensions"]}
    read = flows[0].picking(flows[0].axes[axis] for axis in gone)
    return [read.along(tag for axis, tag in enumerate(flows[0].axes) if axis not in gone)]


def _rev(equation: Any, flows: list[Flow]) -> list[Flow]:
    flow, shape = flows[0], equation.invars[0].aval.shape
    for axis in equation.params["dimensions"]:
        flow = _taken(flow, axis, range(shape[axis])[::-1], shape[axis])
    return [flow]


def _taken(flow: Flow, axis: int, cells: range, size: int) -> Flow:
    """What lies along an axis of which these cells are taken, in this order."""
    tag = flow.axes[axis]
    if cells == range(size) or tag in (None, POSITION, OTHER):
        return flow
    if len(cells) > LONGEST:
        flow, tag = flow.losing([tag]), OTHER
    elif isinstance(tag, Order):
        tag = ordered(tag.dim, [tag.cells[cell] for cell in cells], tag.size)
    else:
        tag = Order(str(tag), tuple(cells), size)
    return flow.along((*flow.axes[:axis], tag, *flow.axes[axis + 1 :]))


def _sort(equation: Any, flows: list[Flow]) -> list[Flow]:
    axis = equation.params["dimension"]
    whole = joined(flows, len(flows[0].axes), "sort").reading([flow.axes[axis] for flow in flows], "sort")
    return [whole for _ in equation.outvars]


def _fft(equation: Any, flows: list[Flow]) -> list[Flow]:
    own = len(equation.params["fft_lengths"])
    return [flows[0].reading(flows[0].axes[len(flows[0].axes) - own :], "fft")]


def _iota(equation: Any, flows: list[Flow]) -> list[Flow]:
    del flows
    shape, own = equation.outvars[0].aval.shape, equation.params["dimension"]
    return [Flow(tuple(POSITION if axis == own and size > 1 else None for axis, size in enumerate(shape)))]


def _random_bits(equation: Any, flows: list[Flow]) -> list[Flow] | None:
    if not _draws_alone(equation, flows):
        return None
    own = equation.outvars[0].aval.shape[len(flows[0].axes) :]
    return [flows[0].along((*flows[0].axes, *(POSITION if size > 1 else None for size in own)))]


def _draws_alone(equation: Any, flows: list[Flow]) -> bool:
    """Whether what a key gives is up to that key: others than Threefry's draw for all beside them, by the first."""
    return not flows[0].axes or str(equation.invars[0].aval.dtype) == _THREEFRY


def _folded_in(equation: Any, flows: list[Flow]) -> list[Flow] | None:
    return _keys(equation, flows) if _draws_alone(equation, flows) else None


def _keys(equation: Any, flows: list[Flow]) -> list[Flow]:
    """Keys of keys or of words, whose axes are the first of both."""
    rank = len(equation.outvars[0].aval.shape)
    whole = joined([flow.along((*flow.axes[:rank], *(OTHER,) * (rank - len(flow.axes)))) for flow in flows], rank, "")
    return [whole]


def _dot(equation: Any, flows: list[Flow]) -> list[Flow]:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = flows
    name = equation.primitive.name
    batch = joined(
        [left.along(left.axes[axis] for axis in left_batch), right.along(right.axes[axis] for axis in right_batch)],
        len(left_batch),
        name,
    )
    free = [tag for axis, tag in enumerate(left.axes) if axis not in (*left_sum, *left_batch)]
    free += [tag for axis, tag in enumerate(right.axes) if axis not in (*right_sum, *right_batch)]
    summed = [*(left.axes[axis] for axis in left_sum), *(right.axes[axis] for axis in right_sum)]
    return [batch.along((*batch.axes, *free)).reading(summed, name)]


def _slice(equation: Any, flows: list[Flow]) -> list[Flow]:
    params, shape, flow = equation.params, equation.invars[0].aval.shape, flows[0]
    for axis, stride in enumerate(params["strides"] or (1,) * len(shape)):
        cells = range(params["start_indices"][axis], params["limit_indices"][axis], stride)
        flow = _taken(flow, axis, cells, shape[axis])
    return [flow]


def _split(equation: Any, flows: list[Flow]) -> list[Flow]:
    own, shape, start, found = equation.params["axis"], equation.invars[0].aval.shape, 0, list[Flow]()
    for length in equation.params["sizes"]:
        found.append(_taken(flows[0], own, range(start, start + length), shape[own]))
        start += length
    return found


def _concatenate(equation: Any, flows: list[Flow]) -> list[Flow]:
    own = equation.params["dimension"]
    return [_together(flows, own, [atom.aval.shape[own] for atom in equation.invars])]


def _stack(equation: Any, flows: list[Flow]) -> list[Flow]:
    own = equation.params["axis"]
    return [
        _together([flow.along((*flow.axes[:own], None, *flow.axes[own:])) for flow in flows], own, [1] * len(flows))
    ]


def _together(flows: list[Flow], own: int, sizes: list[int]) -> Flow:
    flows = _side_by_side(flows, own, sizes)
    blank = [flow.along((*flow.axes[:own], None, *flow.axes[own + 1 :])) for flow in flows]
    found, tags = joined(blank, len(flows[0].axes), "concatenate"), [flow.axes[own] for flow in flows]
    orders = [tag for tag in tags if isinstance(tag, Order)]
    tag: Tag = OTHER
    if len(orders) == len(tags) and len({order.dim for order in orders}) == 1:
        tag = ordered(orders[0].dim, (cell for order in orders for cell in order.cells), orders[0].size)
    else:
        found = found.losing(tags)
    if len(flows) > 1:
        found = found.piecing(tags)
    return found.along((*found.axes[:own], tag, *found.axes[own + 1 :]))


def _side_by_side(flows: list[Flow], own: int, sizes: list[int]) -> list[Flow]:
    """Cells that were picked one by one, along the axis on which they come together again: `jnp.stack`."""
    picks = [
        flow.picked if size == 1 and flow.axes[own] is None else {} for flow, size in zip(flows, sizes, strict=True)
    ]
    dims = {dim for picked in picks for dim in picked} | {
        tag.dim for flow in flows if isinstance(tag := flow.axes[own], Order)
    }
    apart = dict[str, list[Order]]()
    for dim in dims:
        tags = [picked.get(dim, flow.axes[own]) for flow, picked in zip(flows, picks, strict=True)]
        orders = [tag for tag in tags if isinstance(tag, Order) and tag.dim == dim]
        others = dims_of(tag for flow in flows for tag in (*flow.axes[:own], *flow.axes[own + 1 :]))
        # Where all are the same cell it is another dimension that comes together here.
        if len(orders) == len(flows) and len({order.cells for order in orders}) > 1 and dim not in others:
            apart[dim] = orders
    if len(apart) > 1:  # cells of several dimensions, in an order that is not followed
        return [functools.reduce(Flow.unpicked, apart, flow).losing(apart) for flow in flows]
    for dim, orders in apart.items():
        pairs = zip(flows, orders, strict=True)
        return [flow.unpicked(dim).along((*flow.axes[:own], order, *flow.axes[own + 1 :])) for flow, order in pairs]
    return flows


def _cumulative(equation: Any, flows: list[Flow]) -> list[Flow]:
    return [flows[0].reading([flows[0].axes[equation.params["axis"]]], equation.primitive.name)]


def _hash(equation: Any, flows: list[Flow]) -> list[Flow]:
    return [joined(flows, len(out.aval.shape), equation.primitive.name) for out in equation.outvars]


RULES: dict[str, Callable[[Any, list[Flow]], list[Flow] | None]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "dot_general": _dot,
    "fft": _fft,
    "iota": _iota,
    "random_bits": _random_bits,
    "random_fold_in": _folded_in,
    "random_seed": _keys,
    "random_unwrap": _keys,
    "random_wrap": _keys,
    "reshape": _reshape,
    "rev": _rev,
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "threefry2x32": _hash,
    "transpose": _transpose,
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(CUMULATIVE, _cumulative),
}
