"""What passes make, kept in memory: results that have no sink, and values between passes."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from combinators.index_space.tensor_type import TensorType
from tapestry_jax.storage.boxes import slices
from tapestry_jax.storage.in_memory import InMemory
from tapestry_jax.storage.protocols import Array, Box


def fetched(value: Any) -> Array:
    """A value on the devices as an array of NumPy; of one without cells only the shape is asked for."""
    # What a compiled program returns without cells may lie on the devices in other shapes than its own.
    return np.asarray(value) if value.size else np.empty(value.shape, value.dtype)


class Held:
    """A `Sink` that is an array."""

    def __init__(self, kind: TensorType) -> None:
        self.array: Array = np.zeros(kind.shape, kind.dtype)
        self.shape, self.dtype, self.chunks = self.array.shape, self.array.dtype, self.array.shape
        self.names = kind.names if any(kind.names) else None
        self.where = f"an array in memory, {kind}"

    def write(self, box: Box, array: Array) -> Future[None]:
        """Copy a box; the future is done at once."""
        self.array[slices(box)] = array
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def flush(self) -> None:
        """Memory does not survive its process."""

    def finish(self) -> InMemory:
        """The array, to be read."""
        return InMemory(self.array, self.names)

    def close(self) -> None:
        """Nothing is under way."""
