"""How the files of chunks are called, and which of them were there when their array was opened."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.storage.errors import WrittenError
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
    """The files that were there when an array of Zarr was opened.

    The format fills in what is not there. So one that goes away would be read as cells that nobody wrote.

    Args:
      names: of the files.
      where: the place, for people.
    """

    def __init__(self, names: Sequence[str], where: str) -> None:
        # Eight bytes for each, as there may be millions.
        self._hashes, self._where = np.sort(_hashes(names)), where

    def known(self, names: Sequence[str]) -> Iterator[str]:
        """Those of some names that were there."""
        hashes = _hashes(names)
        known = np.searchsorted(self._hashes, hashes, "left") < np.searchsorted(self._hashes, hashes, "right")
        return itertools.compress(names, known.tolist())

    def gone(self, name: str) -> WrittenError:
        """The error of a file that was there, and is not."""
        remedy = "Put it back; or open the array again, which then has its fill value there."
        return WrittenError(self._where, f"the chunk `{name}` lay there then, and is gone", remedy=remedy)


def _hashes(names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter(map(hash, names), np.int64, len(names))
