"""The header of a file `.npy`: read with bounds as data, and written as NumPy writes it."""

from __future__ import annotations

import ast
import io
import re
from typing import Any

import numpy as np

from combinators.errors import FormatError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import check_shape, count
from tapestry_jax.storage.dtypes import PLAIN, read_dtype
from tapestry_jax.storage.files.ranges import Ranges, cut_short
from tapestry_jax.storage.files.strided import Layout

_MAGIC = b"\x93NUMPY"
_MOST_BYTES = 10_000
"""As NumPy: longer ones can take Python's parser apart."""
_REMEDY = "Write it again by numpy.save, as an array of numbers."


@dataclass(frozen=True)
class Header:
    """What the header says.

    Attributes:
      shape: sizes.
      dtype: in the byte order of this machine.
      layout: where the cells lie.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: Layout


def read_header(source: Ranges) -> Header:
    """Read and check the header; nothing is made room for before the sizes fit the file.

    Raises:
      FormatError: for what is no such file, holds no numbers, or is of another length than the header says.
    """
    text, offset = _read_text(source)
    said = _parsed(text, source.where)
    stored = _read_descr(said["descr"], source.where)
    dtype = read_dtype(stored, PLAIN, f"`{source.where}`")
    shape = check_shape(said["shape"], dtype, f"`{source.where}`")
    expected = offset + count(shape) * dtype.itemsize
    if source.size < expected:
        raise cut_short(source.where, expected, source.size)
    if source.size > expected:
        details = (f"expected {expected} bytes, for {dtype.name} {shape}", f"got {source.size}")
        raise FormatError(message(f"`{source.where}` is longer than its header says", *details, remedy=_REMEDY))
    return Header(shape, dtype, Layout.of(offset, shape, stored, fortran=said["fortran_order"]))


def written(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The header of an array in C order."""
    out = io.BytesIO()
    said: dict[str, Any] = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, said)
    return out.getvalue()


def _read_text(source: Ranges) -> tuple[str, int]:
    start = _bytes(source, 0, 8)
    major = start[6]
    if start[:6] != _MAGIC or major not in (1, 2, 3):
        details = ("expected the first bytes \\x93NUMPY and version 1, 2 or 3", f"got {start!r}")
        raise FormatError(message(f"`{source.where}` is no .npy file", *details, remedy=_REMEDY))
    width = 2 if major == 1 else 4
    length = int.from_bytes(_bytes(source, 8, width), "little")
    if length > _MOST_BYTES:
        details = (f"expected at most {_MOST_BYTES} bytes", f"got {length}")
        raise FormatError(message(f"the header of `{source.where}` is too long", *details, remedy=_REMEDY))
    return _bytes(source, 8 + width, length).decode("latin1"), 8 + width + length


def _bytes(source: Ranges, offset: int, length: int) -> bytes:
    if offset + length > source.size:
        raise cut_short(source.where, offset + length, source.size)
    found = bytearray(length)
    source.read(offset, memoryview(found))
    return bytes(found)


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        said = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        said = None
    is_right = isinstance(said, dict) and said.keys() == {"descr", "fortran_order", "shape"}
    if isinstance(said, dict) and is_right and isinstance(said["fortran_order"], bool):
        return said
    expected = "expected a dictionary of descr, fortran_order and shape"
    raise FormatError(message(f"`{where}` has no readable header", expected, f"got {spelt(text, 120)}", remedy=_REMEDY))


def _read_descr(descr: Any, where: str) -> np.dtype[Any]:
    if isinstance(descr, str) and re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16)|[?])", descr):
        return np.dtype(descr)
    why = "objects are pickles, which are not read" if isinstance(descr, str) and "O" in descr else "expected numbers"
    headline = f"`{where}` holds no plain numbers"
    raise FormatError(message(headline, why, f"got the dtype {spelt(descr)}", remedy=_REMEDY))
