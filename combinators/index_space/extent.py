"""The cells of an axis, from the sizes of its dimensions: how many it has, and which are read."""

from __future__ import annotations

import math
from collections.abc import Mapping

from combinators.errors import SignatureError, message
from combinators.index_space.axis import Axis


def axis_extent(axis: Axis, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Find the cells of an axis that the whole index box reads.

    Args:
      axis: of any kind.
      sizes: of at least the axis's dimensions.

    Returns:
      The smallest half-open range that holds all reads, `(0, 0)` where the box is empty. An affine range may start
      below 0 or end past the tensor, where a boundary answers.
    """
    if not axis.is_window:
        return 0, axis_size(axis, sizes)
    if any(sizes[term.name] == 0 for term in axis.terms):
        return 0, 0
    low, high = cells_read(axis, sizes)
    return low, high + 1


def axis_size(axis: Axis, sizes: Mapping[str, int]) -> int:
    """Find the size of a bare, whole, composite or `1` axis: the product of its dimensions' sizes.

    Args:
      axis: no affine expression, whose tensor may be larger than what is read.
      sizes: of at least the axis's dimensions.

    Returns:
      The number of cells.

    Raises:
      SignatureError: when the axis is an affine expression.
    """
    if axis.is_window:
        raise SignatureError(
            message(
                f"the dimensions of `{axis}` do not give the size of its axis.",
                "strides leave a remainder unread",
                remedy="Take the size from the operand's shape, or the cells read from `axis_extent`.",
            )
        )
    return math.prod(sizes[name] for name in axis.names)


def cells_read(axis: Axis, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The smallest and the largest cell that an affine axis reads over a box that is not empty."""
    reaches = [term.coefficient * (sizes[term.name] - 1) for term in axis.terms]
    return axis.offset + sum(min(0, reach) for reach in reaches), axis.offset + sum(max(0, reach) for reach in reaches)
