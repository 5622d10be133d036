"""What arrays take in a TPU's memory: they lie in tiles of 8 rows by 128 lanes, and are padded to whole ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tapestry_jax.planning.geometry.layout import dense_bytes

_LANES, _ROWS, _WORD = 128, 8, 4


def tiled_bytes(shape: Sequence[int], dtype: Any) -> int:
    """The bytes of an array at the boundary of a program, in the order of dimensions that pads it least.

    Args:
      shape: of one device's piece.
      dtype: of its elements; smaller ones than words lie in taller tiles.
    """
    whole = math.prod(shape)
    if len(shape) < 2 or not whole:
        return dense_bytes(whole, dtype)
    tallest = _ROWS * max(_WORD * 8 // dense_bytes(8, dtype), 1)
    cells = min(
        whole // (lanes * rows) * _up(lanes, _LANES) * _up(rows, _height(rows, tallest))
        for at, lanes in enumerate(shape)
        for place, rows in enumerate(shape)
        if at != place
    )
    return dense_bytes(cells, dtype)


def _height(rows: int, tallest: int) -> int:
    """The tile's: half as high, and again, where all rows fit into it."""
    while tallest > 1 and rows <= tallest // 2:
        tallest //= 2
    return tallest


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile
