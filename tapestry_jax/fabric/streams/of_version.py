"""What a version of a tensor looks like from storage, read or written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.records import Version
from tapestry_jax.storage.files.threads import THREADS, Threads
from tapestry_jax.storage.protocols import Beside, Shown


class OfVersion(Shown):
    """Shape, dtype, names, chunks and place of a version, and the threads that move its boxes.

    Args:
      opened: the fabric.
      name: of the tensor.
      version: which.
    """

    def __init__(self, opened: Opened, name: str, version: Version) -> None:
        self._opened, self._name, self._version = opened, name, version
        kind = version.kind
        self.shape, self.dtype = kind.type.shape, kind.type.dtype
        self.names = kind.type.names if any(kind.type.names) else None
        self.chunks = tuple(min(a, max(b, 1)) for a, b in zip(kind.chunks, self.shape, strict=True))
        self.number = version.number
        self.where = f"{name} in the fabric {opened.where}"
        self._threads = Threads(self.where)


def of_blocks(shape: Sequence[int], blocks: Sequence[int], dtype: np.dtype[Any]) -> Beside:
    """What the threads of a tensor take beside the arrays of the caller: a block each."""
    own = THREADS * min(math.prod(blocks), math.prod(shape)) * dtype.itemsize
    return Beside(own, "a block for each thread")
