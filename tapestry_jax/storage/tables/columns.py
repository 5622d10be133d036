"""A column as something stored: groups of rows, each read as a whole, as the formats of tables do."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from functools import partial as given
from typing import Any, Protocol

from combinators.errors import FormatError, message
from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import check_cells, check_names, check_shape, slices
from tapestry_jax.storage.dtypes import PLAIN, read_dtype
from tapestry_jax.storage.files.threads import Threads
from tapestry_jax.storage.protocols import Array, Box, Names, Shown


class Groups(Protocol):
    """Where the rows come from."""

    def load(self, group: int) -> Array:
        """The rows of a group, of the column's shape and dtype.

        Raises:
          FormatError: for rows that are damaged, or have no number.
        """
        ...

    def fingerprint(self) -> str:
        """As of the file."""
        ...

    def close(self) -> None:
        """Let the file go."""
        ...


@dataclass(frozen=True)
class Column:
    """What a column is.

    Attributes:
      rows: in each group.
      cell: the shape of a row's cell; `()` for plain numbers.
      dtype: of the numbers.
      where: the place, for people.
    """

    rows: tuple[int, ...]
    cell: tuple[int, ...]
    dtype: Any
    where: str


class ColumnStored(Shown):
    """A `Stored` of the shape (rows, *cell). Groups of rows are its chunks: a read loads those it meets."""

    def __init__(self, groups: Groups, column: Column, names: Names | None) -> None:
        self.where = column.where
        self.dtype = read_dtype(column.dtype, PLAIN, f"`{self.where}`")
        self.shape = check_shape((sum(column.rows), *column.cell), self.dtype, f"`{self.where}`")
        self.names = check_names(names, len(self.shape), f"`{self.where}`")
        self.chunks = (max((*column.rows, 1)), *column.cell)
        self._groups, self._starts = groups, [0, *itertools.accumulate(column.rows)]
        # Readers of tables are not made for several threads.
        self._threads = Threads(self.where, 1)

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`, on a thread of its own."""
        box = check_cells(box, into, self, is_target=True)
        return self._threads.submit(given(self._read, box, into))

    def _read(self, box: Box, into: Array) -> None:
        (start, stop), rest = box[0], box[1:]
        for group, (first, last) in enumerate(itertools.pairwise(self._starts)):
            begin, end = max(start, first), min(stop, last)
            if begin < end:
                found = self._checked(self._groups.load(group), group)
                into[begin - start : end - start] = found[(slice(begin - first, end - first), *slices(rest))]

    def _checked(self, found: Array, group: int) -> Array:
        expected = (self._starts[group + 1] - self._starts[group], *self.shape[1:])
        if found.shape == expected and found.dtype == self.dtype:
            return found
        details = (f"expected {self.dtype.name} {expected}", f"got {found.dtype.name} {found.shape}")
        headline = f"rows {self._starts[group]} to {self._starts[group + 1]} of `{self.where}` are not what was said"
        raise FormatError(message(headline, *details, remedy="It has changed, or is damaged: open it anew."))

    def fingerprint(self) -> str:
        """Of the file: its size, times of change in nanoseconds and inode.

        An edit that puts the first time back changes the second.
        """
        return f"{self.dtype.name}{self.shape}:{self._groups.fingerprint()}"

    def close(self) -> None:
        """Wait for what is under way, and let the file go."""
        if self._threads.close():
            self._groups.close()


def no_numbers(where: str, kind: str) -> FormatError:
    """The error of a column that is no tensor."""
    details = ("expected numbers, lists of a fixed size, or fixed-shape tensors", f"got {kind:.120}")
    remedy = "Convert the column, or choose another."
    return FormatError(message(f"`{where}` is no column of numbers", *details, remedy=remedy))


def has_nulls(where: str, count: int) -> FormatError:
    """The error of rows without a number."""
    remedy = "Fill them or leave them out when writing: no number stands for none."
    return FormatError(message(f"`{where}` has rows without a number", f"got {count} of them", remedy=remedy))


def row_starts(total: int, size: int) -> tuple[int, ...]:
    """How many rows the groups have, where they are cut evenly."""
    return tuple(min(size, total - start) for start in range(0, total, size))
