"""Small integers whose largest value, or smallest, comes several times along every axis, and in no box like in another.

At a tie a derivative has to say who gets how much. Boxes that share among themselves, and then each inside, say
otherwise than the whole as soon as they do not hold equally many of those that tie; so here three cells do: two beside
each other at one end of an axis, and one at the other end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TIES = ("highs", "lows")
"""Domains: what ties without fail is the largest value, or the smallest."""

_Floats = np.ndarray[Any, np.dtype[np.float64]]
_MOST = 5


def tied(shape: tuple[int, ...], domain: str, source: np.random.Generator) -> _Floats:
    """Draw integers of at most 5, of which one line along each axis holds the largest value in three cells.

    Where there is room (6 cells, or 5), the smallest value comes as often; in `lows` the two change places.

    Args:
      shape: of the array; axes of one or two cells tie in all they have.
      domain: one of `TIES`.
      source: of what does not tie, and of the end at which two lie beside each other.
    """
    drawn = source.integers(1 - _MOST, _MOST, shape).astype(np.float64)
    if max(shape, default=0) < 2:
        return drawn
    _put(drawn, [_far(size) for size in shape], -_MOST)
    _put(drawn, [_near(size) for size in shape], _MOST)
    turned = [axis for axis in range(len(shape)) if source.integers(2)]
    return np.flip(drawn, tuple(turned)) * (1 if domain == "highs" else -1)


def _near(size: int) -> list[int]:
    return sorted({0, min(1, size - 1), size - 1} - {-1})


def _far(size: int) -> list[int]:
    """Cells that `_near` leaves, where there are some."""
    return sorted({2, 3, size - 2} - {0, 1, size - 1}) if size > 3 else [size - 1]


def _put(array: _Floats, cells: list[list[int]], number: float) -> None:
    """Write a number into some cells of the lines through one cell, the first of those of each axis."""
    if array.size == 0:
        return
    centre = [few[0] for few in cells]
    array[tuple(centre)] = number
    for axis, few in enumerate(cells):
        for place in few:
            array[(*centre[:axis], place, *centre[axis + 1 :])] = number
