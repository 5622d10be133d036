"""How large the pages of a Parquet column are: what is decompressed and decoded at once, and no footer says.

Each page begins with its header, a structure of Thrift's compact protocol: its kind, its size decompressed and its size
as it lies there come first. The rest is stepped over, to the next page.
"""

from __future__ import annotations

from collections.abc import Iterator

from combinators.errors import FormatError
from tapestry_jax.storage.files.ranges import Ranges

_WINDOW = 4096
"""Bytes in which a header is looked for; those with long statistics are longer."""
_MOST_DEEP = 8
_FALSE_OR_TRUE, _BYTE, _WHOLE, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


class _NotKnown(Exception):
    """No header is understood here."""


def largest_page(source: Ranges, begin: int, length: int) -> tuple[int, int] | None:
    """The most bytes of a page of a column in a row group, as it lies there and decompressed.

    Args:
      source: the file.
      begin: of the first page.
      length: of all of them.

    Returns:
      None where a header is not understood.
    """
    stored = decompressed = 0
    try:
        for lies, holds in _pages(source, begin, begin + length):
            stored, decompressed = max(stored, lies), max(decompressed, holds)
    except (_NotKnown, IndexError, FormatError):
        return None
    return stored, decompressed


def _pages(source: Ranges, at: int, stop: int) -> Iterator[tuple[int, int]]:
    while at < stop:
        head = bytearray(min(_WINDOW, stop - at))
        source.read(at, memoryview(head))
        reader = _Compact(head)
        known = reader.fields()
        lies, holds = known.get(3, -1), known.get(2, -1)
        if lies < 0 or holds < 0:
            raise _NotKnown
        yield lies, holds
        at += reader.at + lies


class _Compact:
    """Thrift's compact protocol, as far as it takes to step over it."""

    def __init__(self, head: bytearray) -> None:
        self._head, self.at = head, 0

    def fields(self, deep: int = 0) -> dict[int, int]:
        """The whole numbers of a structure, by the numbers of their fields."""
        if deep > _MOST_DEEP:
            raise _NotKnown
        found, number = dict[int, int](), 0
        while (byte := self._byte()) != 0:
            number = number + (byte >> 4) if byte >> 4 else self._whole()
            kind = byte & 15
            if kind in _WHOLE:
                found[number] = self._whole()
            elif kind not in _FALSE_OR_TRUE:
                self._step_over(kind, deep)
        return found

    def _step_over(self, kind: int, deep: int) -> None:
        if kind == _STRUCT:
            self.fields(deep + 1)
        elif kind in (*_FALSE_OR_TRUE, _BYTE):
            self._byte()
        elif kind in _WHOLE:
            self._whole()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            length = self._unsigned()
            self.at += length
        elif kind in _LISTS:
            self._list(deep)
        else:
            raise _NotKnown

    def _list(self, deep: int) -> None:
        if deep > _MOST_DEEP:
            raise _NotKnown
        byte = self._byte()
        for _ in range(self._unsigned() if byte >> 4 == 15 else byte >> 4):
            self._step_over(byte & 15, deep + 1)

    def _byte(self) -> int:
        found = self._head[self.at]
        self.at += 1
        return found

    def _unsigned(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def _whole(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)
