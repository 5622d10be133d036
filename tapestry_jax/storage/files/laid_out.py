"""Tensors whose cells lie at fixed strides: read by offset into given buffers, written in place into reserved room."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial as given
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import FormatError, message
from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import check_cells, count, one_piece, shape_of, slices
from tapestry_jax.storage.dtypes import as_bytes, check_flags
from tapestry_jax.storage.errors import StorageError, of_system
from tapestry_jax.storage.files.ranges import LocalFile, Ranges
from tapestry_jax.storage.files.strided import Layout, between, parts, read_box, touched
from tapestry_jax.storage.files.threads import THREADS, Threads
from tapestry_jax.storage.protocols import NOTHING, Array, Beside, Box, Names, Shown
from tapestry_jax.storage.unfinished import partial
from tapestry_jax.storage.unfinished.filled import Filled, filled_again, keep_filled
from tapestry_jax.storage.unfinished.partial import Draft
from tapestry_jax.storage.unfinished.regular import open_regular

_MOST_AT_ONCE = 2**30
_MOST_MAPPED = 2**20
"""Bytes of pages of the map that a box is written through at once."""
Sizes = tuple[int, ...]


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


class LaidOut(Shown):
    """A `Stored` whose cells lie at fixed strides in some bytes: `.npy`, safetensors.

    Args:
      source: the bytes.
      laid: what its header says.
      where: for people.
      head: of how many bytes the header is.
    """

    def __init__(self, source: Ranges, laid: Laid, where: str, head: int) -> None:
        source.rests_on(0, head)
        self._source, self._layout, self.where = source, laid.layout, where
        self.shape, self.dtype, self.names, self.chunks = laid.shape, laid.dtype, laid.names, one_piece(laid.shape)
        self._threads = Threads(where)

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`, on a thread of its own."""
        box = check_cells(box, into, self, is_target=True)
        return self._threads.submit(given(self._read, box, into))

    def _read(self, box: Box, into: Array) -> None:
        read_box(self._source, self._layout, box, into)
        check_flags(into, self.where)

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """As `Stored.beside`: what lies between cells that lie apart, and what the source of the bytes takes."""
        own = self._source.beside(count(sizes) * self.dtype.itemsize)
        apart = THREADS * between(self._layout, sizes)
        if not apart:
            return own
        less = own.less or "Store it in C order and in the byte order of this machine, and take whole rows."
        return Beside(own.bytes + apart, " and ".join(filter(None, [own.what, "cells that lie apart"])), less)

    def fingerprint(self) -> str:
        """Of a file: its size, times of change in nanoseconds and inode, and the header that was read.

        An edit that puts the first time back changes the second. Of an address: what the
        server calls this version of it.

        Raises:
          WrittenError: where another file lies there now, or the header is another one. Numbers may be.
        """
        return f"{self.dtype.name}{self.shape}{self._layout.offset}:{self._source.fingerprint()}"

    def close(self) -> None:
        """Wait for what is under way, and let the file go."""
        if self._threads.close():
            self._source.close()


class LaidOutSink(Shown):
    """A `Sink` into a file of one tensor, C order; its room is reserved before the first box is written."""

    def __init__(self, draft: Draft, laid: Laid, opened: Callable[[Path], LaidOut], filled: Filled) -> None:
        self.draft, self.filled, self._path, self._layout, self._open = draft, filled, draft.path, laid.layout, opened
        self.where = str(draft.path)
        self.shape, self.dtype, self.names, self.chunks = laid.shape, laid.dtype, laid.names, one_piece(laid.shape)
        try:
            self._file = open_regular(draft.place, os.O_RDWR)
        except (OSError, StorageError) as error:
            draft.let_go()
            raise _said(error, "write a tensor", self.where) from error
        self._let_go = weakref.finalize(self, os.close, self._file)
        self._threads = Threads(self.where)
        self._map = mmap.mmap(self._file, 0) if count(self.shape) else None
        self._cells = None if self._map is None else self._seen(self._map)

    def _seen(self, mapped: mmap.mmap) -> Array:
        return np.ndarray(self.shape, self.dtype, mapped, self._layout.offset)

    def write(self, box: Box, array: Array) -> Future[None]:
        """As `Sink.write`, on a thread of its own."""
        box = check_cells(box, array, self, is_target=False)
        return self._threads.submit(given(self._written, box, array))

    def _written(self, box: Box, array: Array) -> None:
        self._write(box, array)
        self.filled.add(box, array)

    def read_back(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`, of what is written so far."""
        box = check_cells(box, into, self, is_target=True)
        return self._threads.submit(given(self._read_back, box, into))

    def _read_back(self, box: Box, into: Array) -> None:
        # Not through the map: where the file was cut meanwhile that ends the process.
        source = LocalFile(self.draft.place)
        try:
            read_box(source, self._layout, box, into)
        finally:
            source.close()

    def _write(self, box: Box, array: Array) -> None:
        if self._cells is None or not array.size:
            return
        if not (array.flags.c_contiguous and _is_run(box, self.shape)):
            # The room is reserved, so that writing through the map does not end the process where the disk is full.
            for part, begin, length in parts(self._layout, box, _MOST_MAPPED):
                self._cells[slices(part)] = array[slices(part, box)]
                self._forget(begin, length)
            return
        offset, data = self._layout.at(box), as_bytes(array)
        while data:
            try:
                done = os.pwrite(self._file, data[:_MOST_AT_ONCE], offset)
            except OSError as error:
                raise of_system(error, "write a tensor", self.where) from error
            offset, data = offset + done, data[done:]

    def _forget(self, begin: int, length: int) -> None:
        """Let go of pages of the map, which would be counted for this process; the system has and writes them."""
        if self._map is not None:
            first = begin - begin % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, begin + length - first)

    def flush(self) -> None:
        """As `Sink.flush`: what is under way is waited for, then the file and its name are synced."""
        self._threads.check_open()
        self._threads.drain()
        filled = self.filled.to_json()
        try:
            os.fsync(self._file)
            keep_filled(filled, self._path)
        except OSError as error:
            raise of_system(error, "flush a tensor", self.where) from error

    def finish(self) -> LaidOut:
        """As `Sink.finish`."""
        self.flush()
        self.filled.check(self.where)
        # The lock is let go when it is in its place: before, another could take it for what a dead process has left.
        self.draft.put_in_place()
        self.close()
        return self._open(self._path)

    def close(self) -> None:
        """As `Sink.close`."""
        if self._threads.close():
            self._cells = self._map = None
            self._let_go()
            self.draft.let_go()


def written_apart(shape: Sizes, chunks: Sizes, dtype: np.dtype[Any], sizes: Sizes) -> Beside:
    """What writing boxes of a file takes: cells that follow each other nothing, others the pages in which they lie."""
    del chunks
    if _is_run(tuple((0, size) for size in sizes), shape):
        return NOTHING
    own = THREADS * min(touched(Layout.of(0, shape, dtype), sizes), _MOST_MAPPED)
    return Beside(
        own, "pages of cells that lie apart", "Take the first dimension of the sink in pieces, or write Zarr."
    )


def make_file(
    path: Path, head: bytes, laid: Laid, opened: Callable[[Path], LaidOut], *, overwrite: bool
) -> LaidOutSink:
    """Reserve room for a tensor beside its place, as zeros after its header.

    Raises:
      StorageError: where the tensor is there already, another process writes it, or there is no room.
    """
    draft = partial.begin(path, lambda place: place.touch(exist_ok=False), overwrite=overwrite)
    try:
        file = os.open(draft.place, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(file, 0, len(head) + count(laid.shape) * laid.dtype.itemsize)
            os.pwrite(file, head, 0)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        partial.remove(draft.place)
        draft.let_go()
        raise of_system(error, "make room for a tensor", str(path)) from error
    return LaidOutSink(draft, laid, opened, Filled(laid.shape))


def again_file(
    path: Path, head: bytes, laid: Laid, opened: Callable[[Path], LaidOut], *, overwrite: bool
) -> LaidOutSink:
    """Go on with what `make_file` began.

    Raises:
      StorageError: where nothing was begun.
      FormatError: where it is a tensor of another shape, dtype or order.
    """
    draft = partial.go_on(path, overwrite=overwrite)
    place = draft.place
    try:
        with open(open_regular(place), "rb") as file:  # noqa: PTH123, a handle is opened, no path
            begins, size = file.read(len(head)), os.fstat(file.fileno()).st_size
    except (OSError, StorageError) as error:
        draft.let_go()
        raise _said(error, "go on with a tensor", str(path)) from error
    if begins != head or size != len(head) + count(laid.shape) * laid.dtype.itemsize:
        details = (
            f"expected {laid.dtype.name} {laid.shape} in C order, as it was made",
            f"got {size} bytes",
        )
        draft.let_go()
        remedy = "Go on with the program that began it, or begin anew with overwrite=True."
        raise FormatError(message(f"`{place}` is not what was begun", *details, remedy=remedy))
    try:
        filled = filled_again(draft, laid.shape)
    except FormatError:
        draft.let_go()
        raise
    return LaidOutSink(draft, laid, opened, filled)


def _said(error: OSError | StorageError, what: str, where: str) -> StorageError:
    if isinstance(error, OSError):
        return of_system(error, what, where)
    told, *_, remedy = str(error).splitlines()
    return StorageError(message(f"cannot {what}: `{where}`", told, remedy=remedy.strip()))


def _is_run(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether the cells of a box follow each other in C order: after the first axis of which it has several, all."""
    sizes = shape_of(box)
    first = next((axis for axis, size in enumerate(sizes) if size != 1), len(sizes))
    return sizes[first + 1 :] == shape[first + 1 :]
