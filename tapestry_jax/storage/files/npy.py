"""Files `.npy`, read and written."""

from __future__ import annotations

from functools import partial as given
from pathlib import Path
from typing import Any

from combinators.errors import FormatError
from tapestry_jax.storage.boxes import check_names
from tapestry_jax.storage.dtypes import PLAIN, read_dtype
from tapestry_jax.storage.files.laid_out import Laid, LaidOut, LaidOutSink, again_file, make_file
from tapestry_jax.storage.files.npy_header import read_header, written
from tapestry_jax.storage.files.ranges import LocalFile, Ranges
from tapestry_jax.storage.files.strided import Layout
from tapestry_jax.storage.protocols import Names


def open_npy(source: Ranges, names: Names | None = None) -> LaidOut:
    """Open the bytes of a file `.npy`; they are let go where it is none.

    Raises:
      FormatError: as `read_header`.
    """
    try:
        header = read_header(source)
        names = check_names(names, len(header.shape), f"`{source.where}`")
    except FormatError:
        source.close()
        raise
    return LaidOut(source, Laid(header.shape, header.dtype, header.layout, names), source.where, header.layout.offset)


def make_npy(path: Path, shape: tuple[int, ...], dtype: Any, names: Names | None, *, overwrite: bool) -> LaidOutSink:
    """As `make_file`; a dtype that the format does not hold is refused."""
    head, laid = _planned(shape, dtype, names)
    return make_file(path, head, laid, given(_open, names), overwrite=overwrite)


def again_npy(path: Path, shape: tuple[int, ...], dtype: Any, names: Names | None, *, overwrite: bool) -> LaidOutSink:
    """As `again_file`."""
    head, laid = _planned(shape, dtype, names)
    return again_file(path, head, laid, given(_open, names), overwrite=overwrite)


def _planned(shape: tuple[int, ...], dtype: Any, names: Names | None) -> tuple[bytes, Laid]:
    dtype = read_dtype(dtype, PLAIN, "a file .npy")
    head = written(shape, dtype)
    return head, Laid(shape, dtype, Layout.of(len(head), shape, dtype), names)


def _open(names: Names | None, path: Path) -> LaidOut:
    return open_npy(LocalFile(path), names)
