"""Files that are written whole or not at all, and read within bounds."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path

from combinators.stored.json import LARGEST_TEXT

_MOST = 4 * LARGEST_TEXT
"""Bytes of a file that is read: in UTF-8 a character is at most four."""
_KEPT = 40  # characters of a name in that of the file beside it: names have bounds, too


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file beside its place, and move it there: nobody sees half of it, what was there stays where it fails.

    A link leads to the file that is written, and stays; a file that is replaced hands on who may read it. A device, or
    a pipe, is written into: a file in its place would be the end of it.

    Args:
      path: where.
      content: a text, which is written in UTF-8, or bytes.

    Returns:
      The place, as an absolute path.

    Raises:
      OSError: where it cannot be written, or a folder is in its place.
      ValueError: where no file can have such a name, or the text is no Unicode.
    """
    place, data = Path(path).absolute(), content.encode() if isinstance(content, str) else content
    found = _found(place)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{place} is a folder")
    if found is not None and not stat.S_ISREG(found.st_mode):
        place.write_bytes(data)
        return place
    real = Path(os.path.realpath(place))
    beside = real.with_name(f".{real.name[:_KEPT]}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if found is not None:
            shutil.copymode(real, beside)
        beside.replace(real)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    return place


def told(error: OSError | ValueError) -> str:
    """Why a file was not written, without the name in an error of the system: it is that of the file beside it."""
    if isinstance(error, OSError) and error.strerror is not None:
        return f"[Errno {error.errno}] {error.strerror}"
    return str(error)


def read_whole(path: str | os.PathLike[str]) -> str:
    """The text of a file that may be anything; no more of it is read than the largest text of ours has.

    Raises:
      OSError: where it is not there, or may not be read.
      ValueError: where it is no file, but a folder, a pipe or a device; too large; or no text in UTF-8.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise ValueError("it is no file")
    # Should a pipe have come into its place by now, nobody waits for what it says.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123, a descriptor
        size = os.fstat(file.fileno()).st_size
        # A file grows while it is read, and those of the system say that they have no size at all.
        content = file.read(_MOST + 1) if size <= _MOST else b""
        if (size := max(size, len(content))) > _MOST:
            raise ValueError(f"it has {size:,} bytes, at most {_MOST:,} are read")
    return content.decode("utf-8")


def _found(place: Path) -> os.stat_result | None:
    try:
        return place.stat()
    except FileNotFoundError:
        return None
