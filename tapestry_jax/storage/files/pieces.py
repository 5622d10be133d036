"""A tensor from its first cell to its last, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tapestry_jax.storage.boxes import count, shape_of, whole
from tapestry_jax.storage.protocols import Array, Box, Stored

_BYTES = 16 * 2**20


def pieces(tensor: Stored) -> Iterator[Array]:
    """Rows that follow each other, about 16 MiB of them at once, or one if it is larger; a scalar as it is."""
    if not tensor.shape:
        yield read(tensor, ())
        return
    step = rows_at_once(tensor)
    for start in range(0, tensor.shape[0], step):
        yield rows(tensor, start, min(start + step, tensor.shape[0]))


def rows_at_once(tensor: Stored) -> int:
    """How many rows have 16 MiB; whole chunks, where one has less."""
    row = max(1, count(tensor.shape[1:]) * tensor.dtype.itemsize)
    found = max(1, _BYTES // row)
    return found - found % tensor.chunks[0] if found >= tensor.chunks[0] else found


def rows(tensor: Stored, start: int, stop: int) -> Array:
    """Some rows, all of each."""
    return read(tensor, ((start, stop), *whole(tensor.shape[1:])))


def read(tensor: Stored, box: Box) -> Array:
    """A box, as an array of its own.

    Raises:
      FormatError: where it cannot be read.
    """
    into = np.empty(shape_of(box), tensor.dtype)
    tensor.read(box, into).result()
    return into
