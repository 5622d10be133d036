"""A tensor of a fabric that has its name already: what a job finds where its sink was when it has put it there."""

from __future__ import annotations

from concurrent.futures import Future

from combinators.errors import message
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.storage.boxes import check_cells, whole
from tapestry_jax.storage.protocols import Array, Box, Shown
from tapestry_jax.storage.unfinished.filled import Filled


class Finished(Shown):
    """What a name stands for, as a sink that is whole: it takes nothing more.

    Whether it is what a job has made the job has to tell: by its token while it runs, by the fingerprint of the source
    when it has finished.

    Args:
      source: what the name stands for.
      token: of its version.
    """

    def __init__(self, source: FabricSource, token: str) -> None:
        self._source, self._is_given = source, False
        self.shape, self.dtype, self.names = source.shape, source.dtype, source.names
        self.chunks, self.where = source.chunks, source.where
        self.filled = Filled(self.shape, [whole(self.shape)], token)

    def write(self, box: Box, array: Array) -> Future[None]:
        """Nothing is written to a tensor that has its name.

        Raises:
          FormatError: where the box or the array does not fit.
          FabricError: where it is not known that the job that writes has made it.
        """
        if self.filled.is_own:
            # It was killed before it had noted the name: what it makes again is there.
            check_cells(box, array, self, is_target=False)
            there = Future[None]()
            there.set_result(None)
            return there
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
