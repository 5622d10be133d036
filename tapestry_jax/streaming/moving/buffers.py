"""A fixed ring of aligned buffers, into which the pieces of coming turns are read.

Devices on the host take over memory that begins at a multiple of 64 bytes without a copy. Such an array *is* the
buffer: it is read into again only when the turn that consumes it is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.storage.protocols import Array

ALIGNED = 64
"""Bytes: what XLA on CPUs needs to take memory as it is."""


@dataclass(frozen=True)
class Shape:
    """What a turn reads of one value: `copies` different pieces of one shape."""

    sizes: tuple[int, ...]
    dtype: np.dtype[Any]
    copies: int

    @property
    def bytes(self) -> int:
        """Of all of them, each rounded up to whole lines."""
        own = math.prod(self.sizes) * self.dtype.itemsize
        return self.copies * (-(-own // ALIGNED) * ALIGNED)


class Frame:
    """The buffers of one turn.

    Attributes:
      buffers: for every value that the turn reads its pieces.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.buffers = [[aligned(shape.sizes, shape.dtype) for _ in range(shape.copies)] for shape in shapes]
        self._consumer: Any = None

    def taken_by(self, consumer: Any) -> None:
        """Note what is there once the turn that reads these buffers is done."""
        self._consumer = consumer

    @property
    def is_taken(self) -> bool:
        """Whether a turn reads the buffers, or did so last."""
        return self._consumer is not None

    def free(self) -> None:
        """Return once nobody reads the buffers any more."""
        jax.block_until_ready(self._consumer)
        self._consumer = None


def aligned(sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array whose memory begins at a multiple of 64 bytes."""
    length = math.prod(sizes) * dtype.itemsize
    raw = np.empty(length + ALIGNED, np.uint8)
    start = -raw.ctypes.data % ALIGNED
    return raw[start : start + length].view(dtype).reshape(sizes)


def frames_within(shapes: Sequence[Shape], most: int, turns: int) -> int:
    """How many turns are read ahead: as many frames as fit into `most` bytes, at least two, at most one a turn."""
    own = max(1, sum(shape.bytes for shape in shapes))
    return max(1, min(turns, max(2, most // own)))
