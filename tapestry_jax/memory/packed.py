"""Where compilers put what is alive at overlapping times: the memory that blocks take, with the gaps between them.

XLA places blocks of memory by size, the largest first, each into the smallest gap that what is placed already leaves
during its life. Of blocks of one size it takes the one first whose first value lives longest, and those last over which
another one is written. It places all of them a second time by the length of their lives, and takes what comes to less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapestry_jax.memory.blocks import Block

_LEAST = 1024
"""Blocks that are so many times smaller than the largest one fill gaps and are not looked at."""


def packed(blocks: Sequence[Block]) -> int:
    """The bytes that blocks take together."""
    most = max((block.bytes for block in blocks), default=0)
    large = [block for block in blocks if block.bytes * _LEAST > most]
    if not large:
        return 0
    by_size = sorted(large, key=lambda block: (-block.bytes, block.start - block.freed))
    by_life = sorted(large, key=lambda block: (block.start - block.end, -block.bytes))
    return min(_height(by_size), _height(by_life))


def _height(blocks: Sequence[Block]) -> int:
    """The end of the highest of blocks that are placed in this order."""
    starts, ends, lows, highs = (np.zeros(len(blocks), np.int64) for _ in range(4))
    for at, block in enumerate(blocks):
        beside = np.flatnonzero((starts[:at] <= block.end) & (ends[:at] >= block.start))
        low = _gap(lows[beside], highs[beside], block.bytes)
        starts[at], ends[at], lows[at], highs[at] = block.start, block.end, low, low + block.bytes
    return int(highs.max(initial=0))


def _gap(lows: np.ndarray, highs: np.ndarray, size: int) -> int:
    """The lower end of the smallest gap that has room, or of what lies above all."""
    if not len(lows):
        return 0
    order = np.argsort(lows, kind="stable")
    below = np.concatenate([[0], np.maximum.accumulate(highs[order])])
    room = lows[order] - below[:-1]
    fits = np.flatnonzero(room >= size)
    return int(below[fits[np.argmin(room[fits])]] if len(fits) else below[-1])
