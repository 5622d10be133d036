"""Tables of FlatBuffers, as far as metadata of Arrow need them: numbers, tables and vectors, within their bounds."""

from __future__ import annotations

import struct
from typing import Any


class NotKnown(Exception):
    """What lies there is not understood."""


class Flat:
    """A table in some bytes.

    Args:
      data: all of them.
      at: where it begins; of the root table it is what the first four bytes say.
    """

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self._data = data
        self._at = _read(data, "<I", 0)[0] if at is None else at
        self._fields = self._at - _read(data, "<i", self._at)[0]
        self._size = _read(data, "<H", self._fields)[0]

    def number(self, slot: int, kind: str, default: int = 0) -> int:
        """A whole number, of a kind of `struct`."""
        place = self._place(slot)
        return default if place is None else _read(self._data, f"<{kind}", place)[0]

    def table(self, slot: int) -> Flat | None:
        """Another table; None where there is none."""
        place = self._place(slot)
        return None if place is None else Flat(self._data, self._led_to(place))

    def structs(self, slot: int, kind: str) -> list[tuple[Any, ...]]:
        """A vector of structures, of a kind of `struct`; empty where there is none."""
        place = self._place(slot)
        if place is None:
            return []
        begin = self._led_to(place)
        count, size = _read(self._data, "<I", begin)[0], struct.calcsize(f"<{kind}")
        if begin + 4 + count * size > len(self._data):
            raise NotKnown
        return [*struct.iter_unpack(f"<{kind}", self._data[begin + 4 : begin + 4 + count * size])]

    def _led_to(self, place: int) -> int:
        return place + _read(self._data, "<I", place)[0]

    def _place(self, slot: int) -> int | None:
        entry = 4 + 2 * slot
        step = _read(self._data, "<H", self._fields + entry)[0] if entry < self._size else 0
        return self._at + step if step else None


def _read(data: bytes, kind: str, at: int) -> tuple[Any, ...]:
    if not 0 <= at <= len(data) - struct.calcsize(kind):
        raise NotKnown
    return struct.unpack_from(kind, data, at)
