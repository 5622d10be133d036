"""How the files of chunks are called, and which of them lay in a folder when it was opened."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.storage.errors import WrittenError
from tapestry_jax.storage.files.folders import files_below
from tapestry_jax.storage.protocols import Box


@dataclass(frozen=True)
class Named:
    """How the files of chunks are called.

    Attributes:
      prefix: in front of the indices of a chunk.
      separator: between them.
      whole: the file of the one chunk of a scalar.
    """

    prefix: str
    separator: str
    whole: str

    def of(self, box: Box, chunks: Sequence[int]) -> Iterator[str]:
        """The files of the chunks that a box touches."""
        pairs = zip(box, chunks, strict=True)
        indices = [range(start // size, -(-stop // size)) for (start, stop), size in pairs]
        for index in itertools.product(*indices):
            yield self.prefix + self.separator.join(map(str, index)) if index else self.whole


def named_of(version: int, said: Mapping[str, Any]) -> Named | None:
    """What metadata says; None where it names chunks in a way that is not known."""
    if version == 2:
        separator = said.get("dimension_separator", ".")
        return Named("", separator, "0") if separator in (".", "/") else None
    keys = said.get("chunk_key_encoding")
    name, given = (keys.get("name"), keys.get("configuration")) if isinstance(keys, dict) else (keys, None)
    if name not in ("default", "v2"):
        return None
    separator = (given if isinstance(given, dict) else {}).get("separator", "/" if name == "default" else ".")
    if separator not in (".", "/"):
        return None
    return Named(f"c{separator}", separator, "c") if name == "default" else Named("", separator, "0")


class FilesThen:
    """The files that lay in a folder of Zarr when it was opened.

    The format fills in what is not there. So one that goes away would be read as cells that nobody wrote.

    Args:
      folder: of the array.
      named: how its chunks are called.
      chunks: the sizes that lie in one file.
      where: the place, for people.
    """

    def __init__(self, folder: Path, named: Named, chunks: Sequence[int], where: str) -> None:
        self._folder, self._named, self._chunks, self._where = folder, named, chunks, where
        # Eight bytes for each, as there may be millions.
        self._hashes = np.sort(_hashes([name for name, _ in files_below(folder)]))

    def check(self, box: Box) -> None:
        """That the files of a box that lay there still do.

        Raises:
          WrittenError: naming the first that does not.
        """
        names = [*self._named.of(box, self._chunks)]
        hashes = _hashes(names)
        known = np.searchsorted(self._hashes, hashes, "left") < np.searchsorted(self._hashes, hashes, "right")
        for name in itertools.compress(names, known.tolist()):
            if not os.access(f"{self._folder}/{name}", os.F_OK):
                remedy = "Put it back; or open the array again, which then has its fill value there."
                raise WrittenError(self._where, f"the chunk `{name}` lay there then, and is gone", remedy=remedy)


def _hashes(names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter(map(hash, names), np.int64, len(names))
