"""Files that are there as a whole or not at all, whatever ends the process or the machine."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from combinators.errors import FormatError, message
from tapestry_jax.storage.errors import StorageError
from tapestry_jax.storage.unfinished.regular import open_regular

PARTIAL = ".partial-"
"""How names begin of what is being written."""


def write_durably(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file under another name, bring it to the disk, give it its name, and bring the name to the disk.

    A reader sees the old file or the new one. Once it returns, the new one survives a power cut.

    Raises:
      OSError: when it cannot be written, as on a full disk; what was there before stays, and no part of the new one.
    """
    beside = path.with_name(f"{PARTIAL}{secrets.token_hex(4)}-{path.name}")
    try:
        with beside.open("xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_partial(folder: Path) -> None:
    """Remove what writers left that were killed. No other may be writing."""
    for path in folder.glob(f"{PARTIAL}*"):
        path.unlink(missing_ok=True)


def read_whole(path: Path, largest: int) -> bytearray:
    """All bytes of a file.

    Args:
      path: of a file; what waits for ever or has no end, such as a pipe or a device, is none.
      largest: how many bytes are read at most.

    Raises:
      FormatError: for what is no file, or a larger one.
      OSError: when it cannot be read.
    """
    try:
        handle = open_regular(path)
    except StorageError as error:
        raise FormatError(message(f"{path} is no file.", remedy="Remove it.")) from error
    with open(handle, "rb") as file:  # noqa: PTH123, a handle is opened, no path
        found = os.fstat(handle)
        if found.st_size > largest:
            told = f"{found.st_size} bytes, at most {largest}"
            raise FormatError(message(f"{path} is too large to be read.", told, remedy="Remove it."))
        data = bytearray(found.st_size)
        count = file.readinto(data)
    del data[count:]
    return data
