"""The turns of a pass in ranges, and the tree in which what they come to is merged: both follow from the plan alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tapestry_jax.streaming.parts import Pass

T = TypeVar("T")

_TASKS = 64
"""Ranges of a pass at most, where what a range makes is not too large."""

_LARGEST = 64 << 20
"""Bytes that the turns of a range make at most, where a range has several."""


def ranges(part: Pass) -> list[tuple[int, int]]:
    """The turns of a pass, counted in the order in which they run: first, and behind the last, of every range."""
    slots = part.region.body.slots
    made = sum(math.prod(slots[each.slot].local_shape) * slots[each.slot].type.dtype.itemsize for each in part.made)
    each = max(1, min(-(-part.turns // _TASKS), _LARGEST // max(made, 1)))
    return [(begin, min(begin + each, part.turns)) for begin in range(0, part.turns, each)]


def merged_in_order(count: int, leaf: Callable[[int], T], merge: Callable[[T, T], T]) -> T:
    """Merge leaves in a tree that depends on their number alone, neighbours with neighbours, in order.

    Args:
      count: of the leaves, from 1 on.
      leaf: from a number to the leaf; called once for each, in ascending order.
      merge: of two neighbours, the first one first.
    """

    def within(begin: int, stop: int) -> T:
        if stop - begin == 1:
            return leaf(begin)
        # A whole tree on the left: more leaves behind change nothing in it.
        middle = begin + (1 << (stop - begin - 1).bit_length() - 1)
        first = within(begin, middle)
        return merge(first, within(middle, stop))

    return within(0, count)
