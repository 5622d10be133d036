"""What a block reads and makes: the box of a tensor that its index box projects to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from combinators.index_space.axis import Axis
from combinators.index_space.extent import axis_extent
from combinators.index_space.signature import Signature
from tapestry_jax.shards.ranges import Range, whole

Dims = Mapping[str, Range]


def read_range(axis: Axis, mode: str, size: int, sizes: Mapping[str, int], dims: Dims) -> Range:
    """The range of one axis of an operand.

    Where several dimensions of one window are cut, or one runs backwards or goes round a ring, it is the whole axis, of
    which a block takes what it needs.
    """
    moved = [term for term in axis.terms if dims[term.name].steps or not _is_whole(dims[term.name], sizes[term.name])]
    if not moved:
        if not axis.is_window:
            return whole(size)
        low, high = axis_extent(axis, dict(sizes))
        return Range(0, max(high - low, 0), (), (0, max(high - low, 0)), offset=low, mode=mode)
    if axis.is_window:
        (term, *others), own = moved, dims[moved[0].name]
        if others or term.coefficient < 0 or any("~" in name for name in own.coordinates) or own.deal:
            return whole(size)
        low, high = axis_extent(axis, {**sizes, term.name: 1})
        return replace(own, offset=low, stride=term.coefficient, width=max(high - low, 0), mode=mode)
    first, inner = axis.terms[0], 1
    own = dims[first.name]
    for term in axis.terms[1:]:
        inner *= sizes[term.name]
    if inner == 1:
        return own
    if own.before or own.after:
        return replace(own, offset=0, stride=inner, width=inner)
    steps = tuple((name, step * inner) for name, step in own.steps)
    return Range(own.low * inner, own.count * inner, steps, (own.limit[0] * inner, own.limit[1] * inner))


def read_boxes(
    signature: Signature,
    modes: Sequence[Sequence[str]],
    shapes: Sequence[Sequence[int]],
    sizes: Mapping[str, int],
    dims: Dims,
) -> list[tuple[Range, ...]]:
    """The boxes of all array operands."""
    found: list[tuple[Range, ...]] = []
    remaining = iter(shapes)
    for operand, operand_modes in zip(signature.operands, modes, strict=True):
        if operand.coordinate is None:
            axes = zip(operand.axes, operand_modes, next(remaining), strict=True)
            found.append(tuple(read_range(axis, mode, size, sizes, dims) for axis, mode, size in axes))
    return found


def _is_whole(own: Range, size: int) -> bool:
    return own.low == 0 and own.count >= size and not own.before and not own.after
