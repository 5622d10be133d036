"""The folder of one session: its lock is held while the session lives, so that what the dead left can be told."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress

LOCK = "lock"
NAME = re.compile(r"[0-9a-f]{16}")
FILE = re.compile(r"([0-9a-f]{16})/([0-9]{1,12})")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(name: str, within: int | None = None) -> int:
    """A folder, by its descriptor; a link to one is none.

    Raises:
      OSError: when it is not there.
    """
    return os.open(name, _FOLDER, dir_fd=within)


class Session:
    """The folder that this process writes into, made at the first use.

    Args:
      root: descriptor of the folder of all sessions.
    """

    def __init__(self, root: int) -> None:
        self.name = secrets.token_hex(8)
        hidden = f".{self.name}"
        os.mkdir(hidden, dir_fd=root)
        self.folder = open_folder(hidden, root)
        self._root = root
        self._lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=self.folder)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Nobody looks into it before it is locked.
        os.rename(hidden, self.name, src_dir_fd=root, dst_dir_fd=root)
        self._count = 0

    def next_file(self) -> str:
        """A name that no file had."""
        self._count += 1
        return f"{self.name}/{self._count}"

    def files(self) -> list[str]:
        """The files in its folder."""
        return _files(self.name, self.folder)

    def close(self) -> None:
        """End it cleanly: without its lock the folder holds nothing that was left behind."""
        os.unlink(LOCK, dir_fd=self.folder)
        with suppress(OSError):
            os.rmdir(self.name, dir_fd=self._root)  # where nothing was written
        os.close(self.folder)
        os.close(self._lock)


@contextmanager
def dead_sessions(root: int) -> Generator[list[tuple[str, list[str]]]]:
    """Sessions that were killed, with the files in their folders; they stay locked inside, so that one sweeps."""
    locks: list[int] = []
    found: list[tuple[str, list[str]]] = []
    try:
        for name in sorted(each for each in os.listdir(root) if NAME.fullmatch(each)):
            with suppress(OSError):
                folder = open_folder(name, root)
                try:
                    lock = os.open(LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
                    locks.append(lock)
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    found.append((name, _files(name, folder)))
                finally:
                    os.close(folder)
        yield found
    finally:
        for lock in locks:
            os.close(lock)


def _files(name: str, folder: int) -> list[str]:
    return [f"{name}/{file}" for file in os.listdir(folder) if file != LOCK]


def forget_lock(root: int, name: str) -> None:
    """Say that a dead session has been swept."""
    with suppress(OSError):
        folder = open_folder(name, root)
        try:
            os.unlink(LOCK, dir_fd=folder)
        finally:
            os.close(folder)
    with suppress(OSError):
        os.rmdir(name, dir_fd=root)
