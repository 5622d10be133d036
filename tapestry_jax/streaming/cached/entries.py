"""What is in a cache: by key a file that says what a value is, and for large ones a tensor beside it.

The file is a state of a job (`streaming.frozen`): data, with checksums, there as a whole or not at all. It holds a
small value, names a tensor in the folder, or says in which file of the user's it lies and what that file was then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import FormatError, first_line, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.storage.creating import Creation, create
from tapestry_jax.storage.errors import is_full, mended
from tapestry_jax.storage.files.pieces import pieces
from tapestry_jax.storage.in_memory import InMemory, stored
from tapestry_jax.storage.opening import Opened
from tapestry_jax.storage.protocols import Array, Stored
from tapestry_jax.storage.unfinished.partial import remove
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.durable import read_whole, write_durably
from tapestry_jax.streaming.frozen.encoded import decode, encode
from tapestry_jax.streaming.frozen.folder import LARGEST
from tapestry_jax.streaming.frozen.state import Frozen, Position

ENTRY = re.compile(r"([0-9a-f]{64})\.entry", re.ASCII)
_TENSOR = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}\.zarr", re.ASCII)
_OWN = re.compile(r"[0-9a-f]{64}(\.entry|-[0-9a-f]{16}\.zarr(\.partial(\.filled(\.new)?)?|\.replaced)?)", re.ASCII)
"""Names that only a cache gives: an entry, a tensor, and what lies beside a tensor while it is written."""


@dataclass(frozen=True, eq=False)
class Found:
    """A value that was found.

    Attributes:
      entry: the file that says what it is.
      source: the value.
    """

    entry: Path
    source: Stored

    def is_whole(self) -> bool:
        """Whether all of it can be read; small values were looked at when they were found."""
        try:
            for _ in () if isinstance(self.source, InMemory) else pieces(self.source):
                pass
        except FormatError:
            return False
        return True


def find(folder: Path, key: str, kind: TensorType) -> Found | None:
    """The value of a key; None where there is none, or what is there is damaged or was changed since.

    Args:
      folder: of the cache.
      key: of the value.
      kind: what it has to be.
    """
    entry = folder / f"{key}.entry"
    try:
        frozen = decode(read_whole(entry, LARGEST), str(entry))
        source = _source(folder, frozen) if frozen.job.get("value") == key else None
    except (FormatError, OSError):
        # Not there, damaged, or a file that is gone: it is made again.
        return None
    if source is None:
        return None
    if tuple(source.shape) != kind.shape or source.dtype != kind.dtype or not _is_unchanged(source, frozen):
        source.close()
        return None
    # What was asked for last is removed last.
    with contextlib.suppress(OSError):
        os.utime(entry)
    return Found(entry, source)


def keep_array(folder: Path, key: str, array: Array) -> None:
    """Keep a value that lies in memory.

    Raises:
      StreamError: where it cannot be written.
    """
    _write(folder, key, Frozen({"value": key}, {}, {}, Position(finished=True), {"value": array}))


def keep_tensor(folder: Path, key: str, made: Stored, place: Opened) -> None:
    """Keep a value that lies in a file, by the place and the fingerprint of that.

    Args:
      folder: of the cache.
      key: of the value.
      made: the file, opened.
      place: how it is opened again.

    Raises:
      StreamError: where it cannot be written.
    """
    own = Path(place.path).parent == folder.absolute()
    where = Path(place.path).name if own else place.path
    told = {"value": key, "format": place.format or ""}
    _write(folder, key, Frozen(told, {"value": made.fingerprint()}, {"value": where}, Position(finished=True), {}))


def creation(folder: Path, key: str) -> Creation:
    """A place in the cache for a tensor, which no other job has."""
    return create(folder.absolute() / f"{key}-{secrets.token_hex(8)}.zarr")


def remove_entry(folder: Path, key: str) -> None:
    """Forget a value."""
    for path in (folder / f"{key}.entry", *folder.glob(f"{key}-*.zarr")):
        remove(path)


def own_tensor(folder: Path, entry: Path) -> Path | None:
    """The tensor in the folder that an entry names; None where it names none.

    Raises:
      FormatError: where the entry is damaged.
    """
    name = decode(read_whole(entry, LARGEST), str(entry)).sinks.get("value", "")
    return folder / name if _TENSOR.fullmatch(name) else None


def entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Keys and files of all that is there."""
    for path in sorted(folder.iterdir()):
        if (found := ENTRY.fullmatch(path.name)) is not None:
            yield found[1], path


def is_own(path: Path) -> bool:
    """Whether a file or a folder of a cache is the cache's own, by its name."""
    return _OWN.fullmatch(path.name) is not None


def _source(folder: Path, frozen: Frozen) -> Stored | None:
    if "value" in frozen.arrays:
        return stored(np.array(frozen.arrays["value"]))
    where = frozen.sinks.get("value", "")
    if _TENSOR.fullmatch(where):
        where = str(folder.absolute() / where)
    # A path of this machine: nobody's server is asked, and no name leads out of the place of another kind.
    return Opened(where, None, frozen.job.get("format") or None).again() if Path(where).is_absolute() else None


def _is_unchanged(source: Stored, frozen: Frozen) -> bool:
    if isinstance(source, InMemory):
        return True
    try:
        return source.fingerprint() == frozen.sources.get("value")
    except FormatError:
        return False


def _write(folder: Path, key: str, frozen: Frozen) -> None:
    try:
        write_durably(folder / f"{key}.entry", encode(frozen))
    except OSError as error:
        raise _unkept(folder, error) from error


def check_writable(folder: Path) -> None:
    """Refuse a cache that cannot keep what is about to be computed.

    Raises:
      StreamError: where this process may not write there.
    """
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unkept(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _unkept(folder: Path, error: OSError) -> StreamError:
    remedy = f"{'Make room (tp.prune_cache)' if is_full(error) else mended(error)}, or leave cache= out."
    return StreamError(message(f"{folder} cannot keep a value", first_line(error), remedy=remedy))


def bytes_of(path: Path) -> int:
    """What a file or a folder takes."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(bytes_of(each) for each in path.iterdir())


def read_cache(folder: Any) -> Path | None:
    """`cache=` of `tp.stream`.

    Raises:
      StreamError: for what is no folder.
    """
    if folder is None:
        return None
    if not isinstance(folder, str | Path) or not str(folder):
        remedy = 'Name a folder: cache="cache/".'
        raise StreamError(message("cache= of tp.stream is a folder", f"got {spelt(folder)}", remedy=remedy))
    return Path(folder).absolute()
