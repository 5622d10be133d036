"""Chunks whose files hold their cells as memory does: read straight into the arrays of who asks.

TensorStore reads a file into memory of its own, decodes that into more of it, and copies from there: every page of a
chunk is made twice. What this library writes, and Zarr without compression, needs none of it. Whatever is not as
expected (no such file, another length, another checksum) is left to TensorStore, which says what is wrong or fills in.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import slices
from tapestry_jax.storage.dtypes import as_bytes
from tapestry_jax.storage.errors import StorageError
from tapestry_jax.storage.protocols import Array, Box
from tapestry_jax.storage.unfinished.regular import open_regular

_BYTES_OF_CHECKSUM = 4


@dataclass(frozen=True)
class Plain:
    """How the files of such chunks are called, and what they end with.

    Attributes:
      prefix: in front of the indices of a chunk.
      separator: between them.
      is_checked: whether a CRC32C follows the cells.
    """

    prefix: str
    separator: str
    is_checked: bool

    def name(self, index: Sequence[int]) -> str:
        """The name of the file of a chunk, below the folder of its array."""
        return self.prefix + self.separator.join(map(str, index))


def plain_of(version: int, said: Mapping[str, Any]) -> Plain | None:
    """What metadata says, where it says that chunks are stored as they lie in memory; None where it may say more."""
    if sys.byteorder != "little" or not said.get("shape"):
        return None
    return _plain_2(said) if version == 2 else _plain_3(said)


def _plain_2(said: Mapping[str, Any]) -> Plain | None:
    is_plain = said.get("compressor") is None and not said.get("filters") and said.get("order") == "C"
    kind, separator = said.get("dtype"), said.get("dimension_separator", ".")
    if not is_plain or not isinstance(kind, str) or kind[:1] not in ("<", "|") or separator not in (".", "/"):
        return None
    return Plain("", separator, is_checked=False)


def _plain_3(said: Mapping[str, Any]) -> Plain | None:
    codecs, grid, keys = said.get("codecs"), said.get("chunk_grid"), said.get("chunk_key_encoding")
    if not isinstance(codecs, list) or said.get("storage_transformers") or _name(grid) != "regular":
        return None
    names = [_name(codec) for codec in codecs]
    endian = _options(codecs[0]).get("endian", "little") if codecs else None
    separators = {"default": "/", "v2": "."}
    encoding = _name(keys)
    if names not in (["bytes"], ["bytes", "crc32c"]) or endian != "little" or encoding not in separators:
        return None
    separator = _options(keys).get("separator", separators[encoding])
    if separator not in (".", "/"):
        return None
    is_checked = len(names) == 2
    if is_checked and _checksum() is None:
        return None
    return Plain(f"c{separator}" if encoding == "default" else "", separator, is_checked)


def _name(said: Any) -> str:
    name = said.get("name") if isinstance(said, dict) else said
    return name if isinstance(name, str) else ""


def _options(said: Any) -> Mapping[str, Any]:
    found = said.get("configuration") if isinstance(said, dict) else None
    return found if isinstance(found, dict) else {}


def _checksum() -> Callable[[Any], int] | None:
    """The function of the package that Zarr checks with; its version in Python is too slow to be of use."""
    try:
        # An extra.
        import google_crc32c as found
    except ImportError:
        return None
    return found.value if found.implementation == "c" else None


def whole_chunks(box: Box, chunks: Sequence[int], into: Array) -> list[tuple[tuple[int, ...], Array]] | None:
    """The chunks that a box is made of, each with its part of an array; None where one would be read in part or apart.

    Args:
      box: in bounds.
      chunks: the sizes that are stored in one piece.
      into: of the box's shape.
    """
    if any(start % size or stop % size for (start, stop), size in zip(box, chunks, strict=True)):
        return None
    found = [(index, into[slices(part)]) for index, part in _grid(box, chunks)]
    return found if all(part.flags.c_contiguous for _, part in found) else None


def _grid(box: Box, chunks: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Box]]:
    counts = [range(start // size, stop // size) for (start, stop), size in zip(box, chunks, strict=True)]
    for index in itertools.product(*counts):
        corners = [n * size - start for n, size, (start, _) in zip(index, chunks, box, strict=True)]
        yield index, tuple((low, low + size) for low, size in zip(corners, chunks, strict=True))


def read_chunks(folder: Path, plain: Plain, parts: Sequence[tuple[tuple[int, ...], Array]]) -> bool:
    """Read chunks, each into its part; whether every file was as expected."""
    return all(_read(folder / plain.name(index), into, is_checked=plain.is_checked) for index, into in parts)


def _read(path: Path, into: Array, *, is_checked: bool) -> bool:
    tail = bytearray(_BYTES_OF_CHECKSUM if is_checked else 0)
    target = as_bytes(into)
    try:
        file = open_regular(path)
    except (OSError, StorageError):
        return False
    try:
        if os.fstat(file).st_size != len(target) + len(tail):
            return False
        if not _filled(file, target, 0) or not _filled(file, memoryview(tail), len(target)):
            return False
    except OSError:
        return False
    finally:
        os.close(file)
    check = _checksum() if is_checked else None
    return check is None or check(into.reshape(-1).view("u1")) == int.from_bytes(tail, "little")


def _filled(file: int, into: memoryview, offset: int) -> bool:
    done = 0
    while done < len(into):
        got = os.preadv(file, [into[done : done + 2**30]], offset + done)
        if not got:
            return False
        done += got
    return True
