"""What tasks have committed: a file for each range of turns, there as a whole or not at all, with its checksum."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from combinators.errors import FormatError, first_line, message
from combinators.frozen import dataclass
from tapestry_jax.storage.errors import mended
from tapestry_jax.storage.protocols import Array
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.durable import read_whole, write_durably
from tapestry_jax.streaming.frozen.encoded import decode, encode
from tapestry_jax.streaming.frozen.folder import LARGEST
from tapestry_jax.streaming.frozen.state import Frozen, Position

PARTIALS = "partials"
"""The folder of partials in that of a job."""


@dataclass(frozen=True)
class Partials:
    """The partials of a pass of a job.

    Attributes:
      folder: of the job.
      key: of graph, plan, sources and what the pass reads on the devices.
      step: the number of the pass.
    """

    folder: Path
    key: str
    step: int

    @property
    def place(self) -> Path:
        """Where they lie."""
        return self.folder / PARTIALS / f"{self.key[:32]}-pass-{self.step}"

    def commit(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Write a partial; the same one again takes its place.

        Raises:
          StreamError: where it cannot be written.
        """
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            write_durably(self.place / name, encode(self._told(name, arrays)))
        except OSError as error:
            remedy = f"{mended(error)}, and run the job again: it goes on where it was."
            headline = f"what a task has computed cannot be written to {self.place}"
            raise StreamError(message(headline, first_line(error), remedy=remedy)) from error

    def read(self, name: str) -> Mapping[str, Array] | None:
        """A partial that is there and whole; None for one that is missing, damaged or of another job."""
        try:
            found = decode(read_whole(self.place / name, LARGEST), name)
        except (OSError, FormatError):
            return None
        told = self._told(name, {})
        return found.arrays if (found.job, found.position) == (told.job, told.position) else None

    def _told(self, name: str, arrays: Mapping[str, Array]) -> Frozen:
        return Frozen({"key": self.key, "partial": name}, {}, {}, Position(self.step), arrays)


def remove_partials(folder: Path, but: Partials | None = None) -> None:
    """Remove the partials of a job, but those of one pass. A task that nobody waits for may be writing still."""
    top = folder / PARTIALS
    for place in top.iterdir() if top.is_dir() else ():
        if but is None or place != but.place:
            shutil.rmtree(place, ignore_errors=True)
    if but is None:
        shutil.rmtree(top, ignore_errors=True)


def key_of(told: Mapping[str, object], arrays: Iterable[Array]) -> str:
    """A key of texts and arrays: another one where a bit of them is another."""
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype.name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
