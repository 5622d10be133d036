"""Files `.npz`: members that are stored plainly are read in place, compressed ones as a whole; pickles never."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.dtypes import PLAIN, as_bytes, read_dtype
from tapestry_jax.storage.files.npy import open_npy
from tapestry_jax.storage.files.npy_header import written
from tapestry_jax.storage.files.pieces import pieces
from tapestry_jax.storage.files.ranges import AsFile, Ranges
from tapestry_jax.storage.protocols import Beside, Names, Stored
from tapestry_jax.storage.several import choose, named

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_MOST_RATIO = 1100
"""Deflate makes at most 1,032 bytes from one."""
# What zipfile says of damage, wherever it meets it.
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, EOFError),
    *(OSError, ValueError, OverflowError, LookupError),
)
_REMEDY = "Write it again by numpy.savez, or take a copy that is intact."


def open_npz(source: Ranges, tensor: str | None = None, names: Names | None = None) -> Stored:
    """Open an array of a file.

    Raises:
      FormatError: for what is no such file, or a name that it does not have.
    """
    try:
        with zipfile.ZipFile(AsFile(source)) as archive:  # pyright: ignore[reportArgumentType] - it is a raw file
            members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
            name = choose(members, tensor, source.where)
            member = members[name]
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                return named(_decompressed(source, archive, member, name, names), name)
        return named(open_npy(_Member(source, _place(source, member), name), names), name)
    except FormatError:
        source.close()
        raise
    except _UNREADABLE as error:
        source.close()
        headline = f"`{source.where}` is no file .npz that can be read"
        raise FormatError(message(headline, first_line(error)[:200], remedy=_REMEDY)) from error


def write_npz(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write arrays plainly, as `numpy.savez` does.

    Raises:
      FormatError: for a dtype that NumPy's files do not hold.
    """
    heads = {name: written(each.shape, read_dtype(each.dtype, PLAIN, "a file .npz")) for name, each in tensors.items()}
    with zipfile.ZipFile(path, "x") as archive:
        for name, tensor in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(heads[name])
                for piece in pieces(tensor):
                    member.write(as_bytes(piece))


class _Member:
    """A part of other bytes."""

    def __init__(self, source: Ranges, place: tuple[int, int], name: str) -> None:
        self._source, (self._offset, self.size) = source, place
        self.where = f"{source.where}, `{name}`"

    def read(self, offset: int, into: memoryview) -> None:
        """As `Ranges.read`."""
        self._source.read(self._offset + offset, into)

    def beside(self, length: int) -> Beside:
        """As `Ranges.beside`."""
        return self._source.beside(length)

    def rests_on(self, begin: int, stop: int) -> None:
        """As `Ranges.rests_on`."""
        self._source.rests_on(self._offset + begin, self._offset + stop)

    def fingerprint(self) -> str:
        """That of the whole file."""
        return self._source.fingerprint()

    def close(self) -> None:
        """Let the file go."""
        self._source.close()


class _Decompressed:
    """Bytes in memory, of a file that stays open for its fingerprint."""

    def __init__(self, source: Ranges, content: bytes, where: str) -> None:
        self._source, self._content, self.size, self.where = source, memoryview(content), len(content), where
        self.fingerprint, self.close = source.fingerprint, source.close

    def read(self, offset: int, into: memoryview) -> None:
        """As `Ranges.read`."""
        into[:] = self._content[offset : offset + len(into)]

    def beside(self, length: int) -> Beside:
        """All of it is held for as long as it is open."""
        del length
        what = "all of it, which was decompressed when it was opened"
        return Beside(self.size, what, "Write it without compression: numpy.savez.")

    def rests_on(self, begin: int, stop: int) -> None:
        """All of the file was read."""


def _decompressed(
    source: Ranges, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, names: Names | None
) -> Stored:
    """The array of a compressed member, whose checksum is held against its bytes on the way."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"it is compressed in the way {member.compress_type}, which NumPy does not write")
    if member.file_size > _MOST_RATIO * member.compress_size + 1024:
        details = (f"expected at most {_MOST_RATIO} bytes for each that is stored", f"got {member.file_size}")
        raise FormatError(message(f"`{name}` of `{source.where}` cannot be so large", *details, remedy=_REMEDY))
    with archive.open(member) as content:
        found = content.read(member.file_size + 1)
    return open_npy(_Decompressed(source, found, f"{source.where}, `{name}`"), names)


def _place(source: Ranges, member: zipfile.ZipInfo) -> tuple[int, int]:
    """Where the bytes of a member begin, which its own header says, and how many they are."""
    head = bytearray(_LOCAL_HEADER.size)
    source.read(member.header_offset, memoryview(head))
    magic, name, extra = _LOCAL_HEADER.unpack(head)
    begin = member.header_offset + _LOCAL_HEADER.size + name + extra
    if magic != b"PK\x03\x04" or begin + member.file_size > source.size or member.file_size != member.compress_size:
        raise zipfile.BadZipFile(f"`{member.filename}` does not lie where the file says")
    return begin, member.file_size
