"""Files `.npy`: read by offset into given buffers, written in place into reserved room."""

from __future__ import annotations

import mmap
import os
from concurrent.futures import Future
from functools import partial as given
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import FormatError, message
from combinators.frozen import dataclass
from tapestry_jax.storage import partial
from tapestry_jax.storage.boxes import check_array, check_box, count, shape_of, slices
from tapestry_jax.storage.dtypes import PLAIN, as_bytes, check_flags, read_dtype
from tapestry_jax.storage.errors import of_system
from tapestry_jax.storage.files.npy_header import Header, read_header, written
from tapestry_jax.storage.files.ranges import LocalFile, Ranges
from tapestry_jax.storage.files.strided import Layout, read_box
from tapestry_jax.storage.files.threads import Threads
from tapestry_jax.storage.protocols import Array, Box, Names

_MOST_AT_ONCE = 2**30


@dataclass(frozen=True)
class Laid:
    """What a tensor is and where it lies in a file.

    Attributes:
      shape: sizes.
      dtype: in the byte order of this machine.
      layout: where the cells lie.
      names: of the axes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: Layout
    names: Names | None


class LaidOut:
    """A `Stored` whose cells lie at fixed strides in some bytes: `.npy`, safetensors."""

    def __init__(self, source: Ranges, laid: Laid, where: str) -> None:
        self._source, self._layout, self.where = source, laid.layout, where
        self.shape, self.dtype, self.names, self.chunks = laid.shape, laid.dtype, laid.names, laid.shape
        self._threads = Threads(where)

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`, on a thread of its own."""
        box = check_box(box, self.shape, self.where)
        check_array(into, box, self.dtype, self.where, is_target=True)
        return self._threads.submit(given(self._read, box, into))

    def _read(self, box: Box, into: Array) -> None:
        read_box(self._source, self._layout, box, into)
        check_flags(into, self.where)

    def fingerprint(self) -> str:
        """Of a file: its size, time of change in nanoseconds and inode, and the header that was read.

        A change that keeps all of them, such as an edit that puts the time back, is not seen. Of an address: what the
        server calls this version of it.
        """
        return f"{self.dtype.name}{self.shape}{self._layout.offset}:{self._source.fingerprint()}"

    def close(self) -> None:
        """Wait for what is under way, and let the file go."""
        if self._threads.close():
            self._source.close()


class NpySink:
    """A `Sink` into a file `.npy`, C order; its room is reserved before the first box is written."""

    def __init__(self, path: Path, place: Path, header: Header, names: Names | None) -> None:
        self._path, self._header, self.where = path, header, str(path)
        self.shape, self.dtype, self.names, self.chunks = header.shape, header.dtype, names, header.shape
        try:
            self._file = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise of_system(error, "write a tensor", self.where) from error
        self._threads = Threads(self.where)
        self._cells = self._mapped()

    def _mapped(self) -> Array | None:
        if not count(self.shape):
            return None
        mapped = mmap.mmap(self._file, 0)
        return np.ndarray(self.shape, self.dtype, mapped, self._header.layout.offset)

    def write(self, box: Box, array: Array) -> Future[None]:
        """As `Sink.write`, on a thread of its own."""
        box = check_box(box, self.shape, self.where)
        check_array(array, box, self.dtype, self.where, is_target=False)
        return self._threads.submit(given(self._write, box, array))

    def _write(self, box: Box, array: Array) -> None:
        if self._cells is None or not array.size:
            return
        if not (array.flags.c_contiguous and _is_run(box, self.shape)):
            # The room is reserved, so that writing through the map does not end the process where the disk is full.
            self._cells[slices(box)] = array
            return
        offset, data = self._header.layout.at(box), as_bytes(array)
        while data:
            try:
                done = os.pwrite(self._file, data[:_MOST_AT_ONCE], offset)
            except OSError as error:
                raise of_system(error, "write a tensor", self.where) from error
            offset, data = offset + done, data[done:]

    def flush(self) -> None:
        """As `Sink.flush`: what is under way is waited for, then the file and its name are synced."""
        self._threads.check_open()
        self._threads.drain()
        try:
            os.fsync(self._file)
            partial.sync_folder(self._path.parent)
        except OSError as error:
            raise of_system(error, "flush a tensor", self.where) from error

    def finish(self) -> LaidOut:
        """As `Sink.finish`."""
        self.flush()
        self.close()
        partial.put_in_place(self._path)
        return open_npy(LocalFile(self._path), self.names)

    def close(self) -> None:
        """As `Sink.close`."""
        if self._threads.close():
            self._cells = None
            os.close(self._file)


def open_npy(source: Ranges, names: Names | None = None) -> LaidOut:
    """Open the bytes of a file `.npy`; they are let go where it is none.

    Raises:
      FormatError: as `read_header`.
    """
    try:
        header = read_header(source)
    except FormatError:
        source.close()
        raise
    return LaidOut(source, Laid(header.shape, header.dtype, header.layout, names), source.where)


def make_npy(path: Path, shape: tuple[int, ...], dtype: Any, names: Names | None, *, overwrite: bool) -> NpySink:
    """Reserve room for a tensor beside its place, as zeros.

    Raises:
      StorageError: where the tensor is there already, or no room is.
      FormatError: for a dtype that the format does not hold.
    """
    dtype = read_dtype(dtype, PLAIN, "a file .npy")
    place, head = partial.begin(path, overwrite=overwrite), written(shape, dtype)
    try:
        file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.posix_fallocate(file, 0, len(head) + count(shape) * dtype.itemsize)
            os.pwrite(file, head, 0)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        partial.remove(place)
        raise of_system(error, "make room for a tensor", str(path)) from error
    return NpySink(path, place, Header(shape, dtype, Layout.of(len(head), shape, dtype)), names)


def again_npy(path: Path, shape: tuple[int, ...], dtype: Any, names: Names | None) -> NpySink:
    """Go on with what `make_npy` began.

    Raises:
      StorageError: where nothing was begun.
      FormatError: where it is a tensor of another shape, dtype or order.
    """
    dtype, place = read_dtype(dtype, PLAIN, "a file .npy"), partial.found(path)
    source = LocalFile(place)
    try:
        found = read_header(source)
    finally:
        source.close()
    expected = Header(shape, dtype, Layout.of(len(written(shape, dtype)), shape, dtype))
    if found != expected:
        details = (f"expected {dtype.name} {shape} in C order", f"got {found.dtype.name} {found.shape}")
        remedy = "Go on with the program that began it, or begin anew with overwrite=True."
        raise FormatError(message(f"`{place}` is not what was begun", *details, remedy=remedy))
    return NpySink(path, place, expected, names)


def _is_run(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether the cells of a box follow each other in C order: after the first axis of which it has several, all."""
    sizes = shape_of(box)
    first = next((axis for axis, size in enumerate(sizes) if size != 1), len(sizes))
    return sizes[first + 1 :] == shape[first + 1 :]
