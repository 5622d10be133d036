"""A tensor of a fabric as something stored: what `tp.stream` reads, and what `tp.trace` takes as a spec."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.reading import read_version
from tapestry_jax.fabric.tensors.records import Version
from tapestry_jax.storage.boxes import check_array, check_box
from tapestry_jax.storage.files.threads import Threads
from tapestry_jax.storage.protocols import Array, Box, Names


class FabricSource:
    """A version of a tensor, kept as it is until `close`, whatever happens to its name.

    Args:
      opened: the fabric.
      name: of the tensor.
      version: which; pinned, and let go here.
    """

    def __init__(self, opened: Opened, name: str, version: Version) -> None:
        self._opened, self._name, self._version = opened, name, version
        self.where = f"{name} in the fabric {opened.where}"
        self._threads = Threads(self.where)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self._version.kind.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        return self._version.kind.type.dtype

    @property
    def names(self) -> Names | None:
        """What the axes are called."""
        names = self._version.kind.type.names
        return names if any(names) else None

    @property
    def chunks(self) -> tuple[int, ...]:
        """The sizes of blocks."""
        return tuple(min(a, max(b, 1)) for a, b in zip(self._version.kind.chunks, self.shape, strict=True))

    def read(self, box: Box, into: Array) -> Future[None]:
        """Begin to read a box; its blocks are checked.

        Raises:
          FormatError: at once, where the box or the array does not fit.
        """
        box = check_box(box, self.shape, self.where)
        check_array(into, box, self.dtype, self.where, is_target=True)

        def fill() -> None:
            read_version(self._opened, self._name, self._version, box, into)

        return self._threads.submit(fill)

    def fingerprint(self) -> str:
        """The number of the version, which is given to one content of one fabric."""
        return f"fabric:{self._opened.where}:{self._name}:{self._version.number}"

    def close(self) -> None:
        """Wait for what is under way, and let the version go."""
        if self._threads.close():
            self._opened.unpin([self._version.number])
