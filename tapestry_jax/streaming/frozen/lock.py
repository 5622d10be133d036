"""One job a folder: a lock that the system lets go of when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Generator
from pathlib import Path

from combinators.errors import first_line, message
from tapestry_jax.storage.errors import StorageError, mended
from tapestry_jax.storage.unfinished.regular import open_regular
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.durable import remove_partial

LOCK = "lock"
_SAID = re.compile(rb"process \d+ on |(p(r(o(c(e(s(s( \d*)?)?)?)?)?)?)?)?\Z|process \d+ (on?)?\Z")
"""How the file begins that a job has locked: with who it was, not at all, or as far as there was room."""


@contextlib.contextmanager
def locked(folder: str | Path, *, shared: bool = False) -> Generator[Path]:
    """Hold the folder of a job; it is made where it is not there.

    Args:
      folder: of the job.
      shared: whether others may hold it so at the same time.

    Raises:
      StreamError: when another job holds it, in this process or another; when it cannot be made or locked.
    """
    try:
        import fcntl  # which systems without POSIX do not have
    except ImportError as error:
        headline = "a job keeps its state under a lock that this system does not have."
        raise StreamError(message(headline, remedy="Run it without checkpoint=, or on Linux or macOS.")) from error

    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open_regular(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except (OSError, ValueError, StorageError) as error:  # a name may hold a NUL
        raise StreamError(
            message(f"{folder} cannot hold a job.", first_line(error), remedy="Name a folder that may be written to.")
        ) from error
    try:
        try:
            # Of the open file and not of the process: it keeps out a second job of the same process, too.
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            raise _refused(folder, handle, error) from error
        if not shared:
            _take(folder, handle)
        yield folder
    finally:
        os.close(handle)


def _take(folder: Path, handle: int) -> None:
    """Say who holds it, and remove what a job that was ended had not finished."""
    try:
        if not _SAID.match(os.pread(handle, 200, 0)):
            told = f"the file `{LOCK}` there was written by something else"
            raise StreamError(message(f"{folder} cannot hold a job.", told, remedy="Name a folder of its own."))
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        remove_partial(folder)
    except OSError as error:
        remedy = f"{mended(error)}, or name another folder."
        raise StreamError(message(f"{folder} cannot hold a job.", first_line(error), remedy=remedy)) from error


def _refused(folder: Path, handle: int, error: OSError) -> StreamError:
    if not isinstance(error, BlockingIOError):
        told = first_line(error)
        return StreamError(
            message(f"{folder} cannot be locked.", told, remedy="Name a folder on a file system that has locks.")
        )
    holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
    return StreamError(
        message(
            f"{folder} belongs to a job that is running.",
            f"held by {holder if holder.isprintable() and holder else 'another process'}",
            remedy="Wait for it, end it, or name another folder.",
        )
    )
