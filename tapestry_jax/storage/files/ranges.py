"""Bytes that lie somewhere, read by offset; files of this machine are the first of them."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import weakref
from pathlib import Path
from typing import Any, Protocol

from combinators.errors import FormatError, message
from tapestry_jax.storage.errors import WrittenError, of_system
from tapestry_jax.storage.protocols import NOTHING, Beside
from tapestry_jax.storage.unfinished.regular import open_regular

_MOST_AT_ONCE = 2**30
"""Linux reads at most 2 GiB less a page in one call."""


class Ranges(Protocol):
    """Bytes that can be read from several threads at once."""

    @property
    def where(self) -> str:
        """The place, for people."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def read(self, offset: int, into: memoryview) -> None:
        """Fill `into`, which is of bytes, from `offset` on.

        Raises:
          FormatError: where fewer bytes are there.
        """
        ...

    def beside(self, length: int) -> Beside:
        """What is held, and what reading so many bytes at once takes beside `into`, of all threads together."""
        ...

    def rests_on(self, begin: int, stop: int) -> None:
        """Say that of all bytes these alone were read to open a tensor: while they stay, others may be written."""
        ...

    def fingerprint(self) -> str:
        """A text that changes with the bytes, as far as the place tells.

        Raises:
          WrittenError: where what was opened lies there no more, or not so.
        """
        ...

    def close(self) -> None:
        """Let go."""
        ...


class LocalFile:
    """A file of this machine, read by `preadv` without a position, so that threads do not meet."""

    def __init__(self, path: Path) -> None:
        self.where, self._path = str(path), path.absolute()
        try:
            self._file = open_regular(path, remedy="Look at the path, or name a format.")
            # Also when it is forgotten: a program may open many.
            self._let_go = weakref.finalize(self, os.close, self._file)
            about = os.fstat(self._file)
        except OSError as error:
            raise of_system(error, "open a file", self.where) from error
        self.size, self._opened, self._head = about.st_size, about, None

    def read(self, offset: int, into: memoryview) -> None:
        """As `Ranges.read`."""
        done = 0
        while done < len(into):
            try:
                got = os.preadv(self._file, [into[done : done + _MOST_AT_ONCE]], offset + done)
            except OSError as error:
                raise of_system(error, "read a file", self.where) from error
            if not got:
                raise cut_short(self.where, offset + len(into), offset + done)
            done += got

    def beside(self, length: int) -> Beside:
        """The system reads straight into `into`."""
        del length
        return NOTHING

    def rests_on(self, begin: int, stop: int) -> None:
        """As `Ranges.rests_on`."""
        head = begin, stop, _digest(self._path, begin, stop)
        # What was written since it was opened may have come behind the reading of these bytes: then nothing is known.
        self._head = head if told(_looked_at(self._path)) == told(self._opened) else None

    def fingerprint(self) -> str:
        """Of the path's size, times of change and number.

        Raises:
          WrittenError: where another file lies there than the one that is read, or what it was opened by has changed.
        """
        about = _looked_at(self._path)
        if told(about) != told(self._opened):
            # By another file the path says nothing of what is read from this one.
            is_same = (about.st_dev, about.st_ino) == (self._opened.st_dev, self._opened.st_ino)
            if not is_same or self._head is None or _digest(self._path, *self._head[:2]) != self._head[2]:
                raise WrittenError(self.where)
        return told(about)

    def close(self) -> None:
        """Let the file go; what is under way must have ended."""
        self._let_go()


def of_file(path: Path) -> str:
    """Size, times of change in nanoseconds and inode of the file that lies at a path now.

    The second time is that of any change, which no program can put back.

    Raises:
      StorageError: where there is none.
    """
    return told(_looked_at(path))


def _looked_at(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise of_system(error, "look at a file", str(path)) from error


def told(about: os.stat_result) -> str:
    """As `of_file`, of what the system says of a file."""
    return f"{about.st_size}.{about.st_mtime_ns}.{about.st_ctime_ns}.{about.st_ino}"


def _digest(path: Path, begin: int, stop: int) -> bytes:
    try:
        with open(open_regular(path), "rb") as file:  # noqa: PTH123, a handle is opened, no path
            file.seek(begin)
            return hashlib.sha256(file.read(stop - begin)).digest()
    except OSError as error:
        raise of_system(error, "look at a file", str(path)) from error


def cut_short(where: str, expected: int, got: int) -> FormatError:
    """The error of a file that ends before its header says."""
    details = (f"expected at least {expected} bytes", f"got {got}")
    remedy = "It was cut off: copy or write it again."
    return FormatError(message(f"`{where}` is truncated", *details, remedy=remedy))


class AsFile(io.RawIOBase):
    """Ranges as a file of Python's, for readers that want one."""

    def __init__(self, source: Ranges) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As of any file."""
        begins = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size}[whence]
        if begins + offset < 0:
            raise OSError(errno.EINVAL, "before the beginning")
        self._at = begins + offset
        return self._at

    def tell(self) -> int:
        """As of any file."""
        return self._at

    def readinto(self, into: Any) -> int:
        """As of any file."""
        view = memoryview(into).cast("B")
        length = max(0, min(len(view), self._source.size - self._at))
        self._source.read(self._at, view[:length])
        self._at += length
        return length
