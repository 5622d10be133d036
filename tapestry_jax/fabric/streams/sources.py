"""A tensor of a fabric as something stored: what `tp.stream` reads, and what `tp.trace` takes as a spec."""

from __future__ import annotations

from concurrent.futures import Future

from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.moving.reading import read_version
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.streams.of_version import OfVersion, of_blocks
from tapestry_jax.fabric.tensors.records import Version
from tapestry_jax.storage.boxes import check_cells
from tapestry_jax.storage.protocols import Array, Beside, Box


class FabricSource(OfVersion):
    """A version of a tensor, kept as it is until `close`, whatever happens to its name.

    Args:
      opened: the fabric.
      name: of the tensor.
      version: which; pinned, and let go here.
    """

    def __init__(self, opened: Opened, name: str, version: Version) -> None:
        super().__init__(opened, name, version)
        self._token = reads.token(opened.catalogue, version.number)

    @classmethod
    def pinned(cls, opened: Opened, name: str) -> FabricSource:
        """What a name stands for now.

        Raises:
          FabricError: where it stands for nothing.
        """
        with opened.catalogue.writing():
            version = opened.version(name)
            writes.pin(opened.catalogue, opened.blocks.session, [version.number])
        return cls(opened, name, version)

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """As `Stored.beside`: a block for each thread, of whatever boxes."""
        del sizes
        return of_blocks(self.shape, self.chunks, self.dtype)

    def read(self, box: Box, into: Array) -> Future[None]:
        """Begin to read a box; its blocks are checked.

        Raises:
          FormatError: at once, where the box or the array does not fit.
        """
        box = check_cells(box, into, self, is_target=True)

        def fill() -> None:
            read_version(self._opened, self._name, self._version, box, into)

        return self._threads.submit(fill)

    def fingerprint(self) -> str:
        """The version, and when it was made: where a copy of the fabric is put back, its number is given once more."""
        return f"fabric:{self._opened.where}:{self._name}:{self._token}"

    def close(self) -> None:
        """Wait for what is under way, and let the version go."""
        if self._threads.close():
            self._opened.unpin([self._version.number])
