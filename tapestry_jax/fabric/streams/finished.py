"""A tensor of a fabric that has its name already: what a job that has finished finds in the place of its sink."""

from __future__ import annotations

from concurrent.futures import Future

from combinators.errors import message
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.storage.boxes import whole
from tapestry_jax.storage.protocols import Array, Box, Shown
from tapestry_jax.storage.unfinished.filled import Filled


class Finished(Shown):
    """What a name stands for, as a sink that is whole: it takes nothing more.

    Whether it is what a job has made the job has to tell: by the fingerprint of the source.

    Args:
      source: what the name stands for.
    """

    def __init__(self, source: FabricSource) -> None:
        self._source, self._is_given = source, False
        self.shape, self.dtype, self.names = source.shape, source.dtype, source.names
        self.chunks, self.where = source.chunks, source.where
        # Its token is a new one: no job that was stopped has begun it.
        self.filled = Filled(self.shape, [whole(self.shape)])

    def write(self, box: Box, array: Array) -> Future[None]:
        """Nothing is written to a tensor that has its name.

        Raises:
          FabricError: always.
        """
        remedy = "Create another one, or pass overwrite=True and begin anew."
        raise FabricError(message(f"{self.where} is finished already", remedy=remedy))

    def flush(self) -> None:
        """There is nothing to flush."""

    def finish(self) -> FabricSource:
        """What the name stands for."""
        self._is_given = True
        return self._source

    def close(self) -> None:
        """Let go of what nobody has asked for."""
        if not self._is_given:
            self._source.close()
