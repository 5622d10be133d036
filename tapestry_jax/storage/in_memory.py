"""Arrays that are in memory already, read as if they were stored."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future
from typing import Any

import numpy as np

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.boxes import check_cells, check_given, check_names, one_piece, slices
from tapestry_jax.storage.dtypes import ALL, as_bytes, read_dtype
from tapestry_jax.storage.protocols import NOTHING, Array, Beside, Box, Names, Shown


class InMemory(Shown):
    """A `Stored` over an array; see `stored`."""

    def __init__(self, array: Array, names: Names | None) -> None:
        self.array, self.names = array, names
        self.shape, self.dtype, self.chunks = array.shape, array.dtype, one_piece(array.shape)
        self.where = f"an array in memory, {array.dtype.name} {array.shape}"

    def read(self, box: Box, into: Array) -> Future[None]:
        """Copy a box; the future is done at once."""
        box = check_cells(box, into, self, is_target=True)
        into[...] = self.array[slices(box)]
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """Boxes are copied; the array itself is the caller's."""
        del sizes
        return NOTHING

    def fingerprint(self) -> str:
        """A checksum (SHA-256) of the numbers, the shape and the dtype: it sees every change, and reads all."""
        digest = hashlib.sha256(f"{self.shape} {self.dtype.name}".encode())
        # A row at a time: only a row is copied where the array is not contiguous.
        for row in self.array if self.array.ndim else [self.array]:
            digest.update(as_bytes(np.ascontiguousarray(row)))
        return f"memory:{digest.hexdigest()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return InMemory, (self.array, self.names)

    def close(self) -> None:
        """Nothing is held that would be let go."""


def stored(array: Any, *, names: Any = None) -> InMemory:
    """An array in memory as something stored.

    Args:
      array: of NumPy or JAX, or what NumPy makes an array of numbers from. It is not copied where it is NumPy's; it
        must not change while it is read.
      names: what its axes are called, if anything.

    Returns:
      A `Stored`, whose `chunks` are the shape.

    Raises:
      FormatError: for what is no array of numbers, one with a mask or deleted, or names that do not fit it.

    Example:
      >>> import numpy as np
      >>> from tapestry_jax.storage import stored
      >>> x, row = stored(np.arange(6.0).reshape(2, 3), names=("row", "column")), np.empty((1, 3))
      >>> x.read(((1, 2), (0, 3)), row).result()
      >>> row
      array([[3., 4., 5.]])
    """
    check_given(array, "an array in memory")
    try:
        found = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise FormatError(message("this is no array", first_line(error), remedy="Pass an array of numbers.")) from error
    dtype = read_dtype(found.dtype, ALL, "an array in memory")
    if not found.dtype.isnative:
        found = found.astype(dtype)
    return InMemory(found, check_names(names, found.ndim, "an array in memory"))
