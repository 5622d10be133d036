"""Files in places where others may have put something else: that is neither waited for nor written to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from combinators.errors import message
from tapestry_jax.storage.errors import StorageError

_REMEDY = "Look at what lies there, and put the file back."


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666, *, remedy: str = _REMEDY) -> int:
    """A handle of a file; opening a pipe would wait for who writes it, or reads it.

    Args:
      path: of the file.
      flags: as of `os.open`.
      mode: of a file that is made.
      remedy: what is said where something else lies there.

    Raises:
      StorageError: for a pipe, a socket, a device or a folder.
      OSError: when it cannot be opened.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise no_file(path, remedy=remedy)
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_file(path: Path) -> None:
    """That what lies in a place, if anything does, is a file: for what others open.

    Raises:
      StorageError: where it is something else: a pipe would be waited for, and a folder is read as nothing.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise no_file(path)


def no_file(path: Path, *, remedy: str = _REMEDY) -> StorageError:
    """The error of a place in which something else lies than a file."""
    return StorageError(message(f"`{path}` is no file", remedy=remedy))
