"""Composed axes of blocks, `(h d)`: row-major, and only the outermost part is ever cut."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from combinators.axis import Axis

Groups = tuple[tuple[str, ...], ...]
"""For each axis of a tensor its dimensions, the outermost first."""


def groups(axes: Sequence[Axis]) -> Groups:
    """The dimensions of axes without expressions; none for `1`."""
    return tuple(tuple(term.name for term in axis.terms) for axis in axes)


def inner_dims(axes: Groups) -> set[str]:
    """The dimensions that are not outermost, which are never cut, so that their sizes may stand in a kernel."""
    return {dim for dims in axes for dim in dims[1:]}


def block_sizes(block: Any, axes: Groups, inner: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the dimensions in a block: the outermost part of a composition takes what the block leaves."""
    sizes = dict(inner)
    for dims, size in zip(axes, block.shape, strict=True):
        if dims and dims[0] not in sizes:
            rest = math.prod(sizes[dim] for dim in dims[1:])
            sizes[dims[0]] = size // rest if rest else 0
    return sizes


def split(block: Any, axes: Groups, sizes: Mapping[str, int]) -> Any:
    """The block with an axis for each dimension."""
    return block.reshape([sizes[dim] for dims in axes for dim in dims])
