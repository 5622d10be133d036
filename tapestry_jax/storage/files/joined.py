"""Tensors one behind the other as one: a folder of files as rows of one table, and of which file each row is."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import numpy as np

from combinators.errors import FormatError, message, spelt
from tapestry_jax.storage.boxes import check_cells
from tapestry_jax.storage.files.threads import Threads
from tapestry_jax.storage.protocols import Array, Beside, Box, Shown, Stored

_AT_ONCE = 2
"""Boxes."""


class Joined(Shown):
    """A `Stored` of several, along the first axis; see `joined`."""

    def __init__(self, parts: Sequence[Stored]) -> None:
        first, lengths = parts[0], [part.shape[0] for part in parts]
        self.parts, self._starts = tuple(parts), [0, *accumulate(lengths)]
        self.shape, self.dtype, self.names = (self._starts[-1], *first.shape[1:]), first.dtype, first.names
        self.chunks = tuple(max(1, min(size, own)) for size, own in zip(first.chunks, self.shape, strict=True))
        self.where = f"{len(parts)} tensors from {first.where} on"
        self._threads = Threads(self.where, _AT_ONCE)

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many rows each tensor has."""
        return tuple(part.shape[0] for part in self.parts)

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`: tensor after tensor, so that no more of them is under way than of one."""
        box = check_cells(box, into, self, is_target=True)
        return self._threads.submit(lambda: self._read(box, into))

    def _read(self, box: Box, into: Array) -> None:
        for part, rows, target in self._touched(box[0]):
            part.read((rows, *box[1:]), into[target]).result()

    def _touched(self, rows: tuple[int, int]) -> Iterator[tuple[Stored, tuple[int, int], slice]]:
        """The tensors that have some rows, which of their own these are, and where they go."""
        start, stop = rows
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            begin, end = self._starts[number], min(stop, self._starts[number + 1])
            if start < end:
                yield self.parts[number], (start - begin, end - begin), slice(start - rows[0], end - rows[0])
            start, number = max(start, end), number + 1

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """Twice that of the tensor that takes most: two boxes read one tensor each at a time."""
        most = max((part.beside(sizes) for part in self.parts), key=lambda each: each.bytes)
        return replace(most, bytes=_AT_ONCE * most.bytes)

    def fingerprint(self) -> str:
        """A checksum of what each tensor says, in order."""
        digest = hashlib.sha256()
        for part in self.parts:
            digest.update(f"{part.shape} {part.fingerprint()}\n".encode())
        return f"joined:{digest.hexdigest()}"

    def close(self) -> None:
        """Wait for what is under way, and close all tensors."""
        if self._threads.close():
            for part in self.parts:
                part.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (self.parts,)


class Numbers(Shown):
    """A `Stored` that says of each row of several tensors which of them it is from; see `numbers`."""

    def __init__(self, lengths: Sequence[int], name: str | None) -> None:
        self.lengths, self._ends = tuple(lengths), np.cumsum(lengths)
        self.shape, self.dtype = (sum(lengths),), np.dtype(np.int32)
        self.chunks, self.names = (max(1, self.shape[0]),), None if name is None else (name,)
        self.where = f"the numbers of {len(lengths)} tensors"

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`; nothing is read."""
        box = check_cells(box, into, self, is_target=True)
        into[...] = np.searchsorted(self._ends, np.arange(*box[0]), side="right")
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """For each row its index and the number found, of 64 bits."""
        return Beside(2 * sizes[0] * np.dtype(np.int64).itemsize, "the numbers of rows")

    def fingerprint(self) -> str:
        """A checksum of the lengths, which say all."""
        return f"numbers:{hashlib.sha256(repr(self.lengths).encode()).hexdigest()}"

    def close(self) -> None:
        """Nothing is open."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Numbers, (self.lengths, None if self.names is None else self.names[0])


def joined(tensors: Any) -> Joined:
    """Several tensors as one, along their first axis, of any number of rows each.

    Args:
      tensors: what `tp.open` gives, in order; all stay open.

    Returns:
      A `Stored`. Its fingerprint is that of all.

    Raises:
      FormatError: for none, and for other dtypes or other sizes of the further axes than the first has.

    Example:
      >>> import numpy as np
      >>> from tapestry_jax.storage import joined, numbers, stored
      >>> rows = joined([stored(np.ones((2, 3))), stored(np.zeros((3, 3)))])
      >>> whole, which = np.empty((5, 3)), np.empty(5, np.int32)
      >>> rows.read(((0, 5), (0, 3)), whole).result(), numbers(rows).read(((0, 5),), which).result()
      (None, None)
      >>> whole[:, 0].tolist(), which.tolist()
      ([1.0, 1.0, 0.0, 0.0, 0.0], [0, 0, 1, 1, 1])
    """
    given = cast("list[Any]", list(tensors)) if isinstance(tensors, tuple | list) else []
    if not given or not all(isinstance(each, Stored) for each in given):
        remedy = "Pass a list: joined([tp.open(path) for path in paths])."
        raise FormatError(
            message("joined takes what tp.open gives, one or more", f"got {spelt(tensors)}", remedy=remedy)
        )
    first = given[0]
    wrong = [each for each in given if not each.shape or (each.dtype, each.shape[1:]) != (first.dtype, first.shape[1:])]
    if wrong:
        details = [f"{each.where}: {each.dtype.name} {tuple(each.shape)}" for each in (first, wrong[0])]
        remedy = "Join tensors that differ in the number of rows alone."
        raise FormatError(message("tensors of other types are not joined", *details, remedy=remedy))
    return Joined(given)


def numbers(tensors: Any) -> Numbers:
    """Of each row of joined tensors, which of them it is from: int32, from 0.

    With it a fold of all rows is one of each tensor: `tp.fold(mean.by_segment(None, len(files)), "row c, row -> c")`.

    Args:
      tensors: what `joined` gave.

    Raises:
      FormatError: for anything else.
    """
    if not isinstance(tensors, Joined):
        raise FormatError(message("numbers takes what joined gave", f"got {spelt(tensors)}", remedy="Join them first."))
    return Numbers(tensors.lengths, None if tensors.names is None else tensors.names[0])
