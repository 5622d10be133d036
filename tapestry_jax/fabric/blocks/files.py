"""Blocks in files: bytes in C order and nothing else, so that there is no header that could lie."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tapestry_jax.fabric.blocks.session import FILE, Session, open_folder
from tapestry_jax.fabric.blocks.store import BlockLost, Part, filled
from tapestry_jax.fabric.tensors.records import Block, Kind
from tapestry_jax.storage.dtypes import as_bytes

FOLDER = "blocks"


class FileBlocks:
    """Blocks in files below a folder, one folder for each session that writes.

    Args:
      folder: of the fabric.
    """

    keeps_whole = False

    def __init__(self, folder: Path) -> None:
        (folder / FOLDER).mkdir(exist_ok=True)
        self.root = open_folder(str(folder / FOLDER))
        self._opened: Session | None = None
        self._turn = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False

    @property
    def session(self) -> str:
        """Who writes; its folder is made when this is asked first."""
        return self._session.name

    @property
    def has_session(self) -> bool:
        """Whether there is a folder."""
        return self._opened is not None

    @property
    def _session(self) -> Session:
        with self._turn:
            if self._opened is None:
                self._opened = Session(self.root)
            return self._opened

    def put(self, array: Any, kind: Kind) -> tuple[str, str]:
        """Keep an array; its file and its checksum."""
        session = self._session
        data = np.ascontiguousarray(np.asarray(array, kind.type.dtype))
        with self._turn:
            name = session.next_file()
        _write(session.folder, name.partition("/")[2], data)
        return name, checksum(data)

    def part(self, block: Block, shape: tuple[int, ...], kind: Kind, where: tuple[slice, ...]) -> Any:
        """What lies somewhere in a block, all of which is read and checked."""
        found = self._read(block, shape, kind)[(*where, ...)]
        found.flags.writeable = False
        return found

    def updated(
        self, block: Block | None, shape: tuple[int, ...], kind: Kind, parts: Sequence[Part]
    ) -> tuple[str, str]:
        """A block like another with these parts in it."""
        base = np.zeros(shape, kind.type.dtype) if block is None else self._read(block, shape, kind)
        return self.put(filled(base, parts), kind)

    def is_there(self, block: Block, shape: tuple[int, ...], kind: Kind) -> bool:
        """Whether a block is there, as it was written."""
        try:
            self._read(block, shape, kind)
        except BlockLost:
            return False
        return True

    def own_files(self) -> Sequence[str]:
        """All that this session has put and nobody has removed."""
        return self._session.files()

    def sync(self) -> None:
        """All that was put survives a power cut."""
        os.fsync(self._session.folder)

    def remove(self, files: Iterable[str]) -> None:
        """They are needed no more."""
        for file in files:
            with suppress(OSError, BlockLost):
                folder, name = self._place(file)
                try:
                    os.unlink(name, dir_fd=folder)
                finally:
                    os.close(folder)

    def close(self) -> None:
        """Nothing is put or read any more."""
        if self._is_closed or os.getpid() != self._process:
            return
        # A number that is closed twice may be somebody else's file by then.
        self._is_closed = True
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        os.close(self.root)

    def _read(self, block: Block, shape: tuple[int, ...], kind: Kind) -> np.ndarray[Any, Any]:
        if block.file is None:
            raise BlockLost("it was dropped")
        try:
            folder, name = self._place(block.file)
            try:
                # A pipe has no bytes, and is not waited for.
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            finally:
                os.close(folder)
            with open(file, "rb", buffering=0) as opened:  # noqa: PTH123, a descriptor, since links are not followed
                expected = kind.type.dtype.itemsize * int(np.prod(shape, dtype=object))
                size = os.fstat(file).st_size
                if size != expected:
                    raise BlockLost(f"its file has {size:,} bytes, expected {expected:,}")
                # Sizes are compared before anything is allocated.
                data = np.empty(expected, np.uint8)
                _fill(opened, data, expected)
        except FileNotFoundError as error:
            raise BlockLost("its file is gone") from error
        except OSError as error:
            raise BlockLost(f"its file cannot be read: {error.strerror}") from error
        if checksum(data) != block.checksum:
            raise BlockLost("its bytes are not those that were written: the checksum differs")
        return data.view(kind.type.dtype).reshape(shape) if expected else np.empty(shape, kind.type.dtype)

    def _place(self, file: str) -> tuple[int, str]:
        """Folder and name of a file; a catalogue that was edited cannot name any other.

        Raises:
          BlockLost: when the name is none of ours.
          OSError: when there is no such folder.
        """
        found = FILE.fullmatch(file)
        if found is None:
            raise BlockLost("the catalogue names a file that is none of a fabric's")
        return open_folder(found[1], self.root), found[2]


def checksum(data: np.ndarray[Any, Any]) -> str:
    """Of the bytes of an array that lies in one piece."""
    return hashlib.blake2b(as_bytes(data), digest_size=16).hexdigest()


def _fill(opened: Any, data: np.ndarray[Any, Any], expected: int) -> None:
    done, view = 0, as_bytes(data)
    while done < expected:
        count = opened.readinto(view[done:])
        if not count:
            raise BlockLost(f"its file ended at {done:,} bytes, expected {expected:,}")
        done += count


def _write(folder: int, name: str, data: np.ndarray[Any, Any]) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        with open(file, "wb", buffering=0) as opened:  # noqa: PTH123, a descriptor of a file in our folder
            left = as_bytes(data)
            while left:
                left = left[opened.write(left) :]
            os.fsync(file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
