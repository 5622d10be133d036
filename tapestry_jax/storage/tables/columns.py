"""A column as something stored: rows that are read some at a time, as the formats of tables do."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial as given
from typing import Any, Protocol

from combinators.errors import FormatError, message
from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import check_cells, check_names, check_shape, count, slices
from tapestry_jax.storage.dtypes import PLAIN, read_dtype
from tapestry_jax.storage.files.threads import Threads
from tapestry_jax.storage.protocols import Array, Beside, Box, Names, Shown

PIECE = 1 << 18
"""Bytes of rows that are decoded at once, about."""


class Rows(Protocol):
    """Where the rows come from."""

    def read(self, box: Box, into: Array) -> None:
        """Read a box of the column, on the one thread that does.

        Raises:
          FormatError: for rows that are damaged, or have no number.
        """
        ...

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """As `Stored.beside`."""
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
      rows: in each group that is stored in one piece.
      cell: the shape of a row's cell; `()` for plain numbers.
      dtype: of the numbers.
      where: the place, for people.
    """

    rows: tuple[int, ...]
    cell: tuple[int, ...]
    dtype: Any
    where: str

    @property
    def bytes_of_row(self) -> int:
        """Of the numbers, decoded."""
        return max(1, count(self.cell) * self.dtype.itemsize)

    @property
    def bytes(self) -> int:
        """Of all rows, decoded."""
        return sum(self.rows) * self.bytes_of_row

    @property
    def rows_at_once(self) -> int:
        """How many rows make a piece."""
        return max(1, PIECE // self.bytes_of_row)


class ColumnStored(Shown):
    """A `Stored` of the shape (rows, *cell). Groups of rows are its chunks."""

    def __init__(self, rows: Rows, column: Column, names: Names | None) -> None:
        self.where = column.where
        self.dtype = read_dtype(column.dtype, PLAIN, f"`{self.where}`")
        self.shape = check_shape((sum(column.rows), *column.cell), self.dtype, f"`{self.where}`")
        self.names = check_names(names, len(self.shape), f"`{self.where}`")
        self.chunks = (max((*column.rows, 1)), *column.cell)
        self._rows = rows
        # Readers of tables are not made for several threads.
        self._threads = Threads(self.where, 1)

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`, on a thread of its own."""
        box = check_cells(box, into, self, is_target=True)
        return self._threads.submit(given(self._rows.read, box, into))

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """As `Stored.beside`."""
        return self._rows.beside(sizes)

    def fingerprint(self) -> str:
        """Of the file: its size, times of change in nanoseconds and inode.

        An edit that puts the first time back changes the second.
        """
        return f"{self.dtype.name}{self.shape}:{self._rows.fingerprint()}"

    def close(self) -> None:
        """Wait for what is under way, and let the file go."""
        if self._threads.close():
            self._rows.close()


def put(pieces: Iterable[tuple[int, Array]], column: Column, box: Box, into: Array) -> None:
    """Put rows that come in order into the box that they are read for.

    Args:
      pieces: the number of the first row, and the numbers; the first one may begin before the box, the last end behind.
      column: what they have to be.
      box: of the column.
      into: of the box's shape.

    Raises:
      FormatError: where they are not what was said, or not all come.
    """
    (start, stop), rest = box[0], box[1:]
    done = start
    for first, found in pieces:
        end = min(stop, first + len(found))
        if found.shape[1:] != column.cell or found.dtype != column.dtype or first > done:
            got = f"got {found.dtype.name} {found.shape} from row {first} on"
            raise _another(column, f"expected {column.dtype.name} (rows, {column.cell}) from row {done} on", got)
        if done < end:
            into[done - start : end - start] = found[(slice(done - first, end - first), *slices(rest))]
            done = end
    if done < stop:
        raise _another(column, f"expected rows {start} to {stop}", f"got rows {start} to {done}")


def _another(column: Column, *details: str) -> FormatError:
    headline = f"rows of `{column.where}` are not what was said"
    return FormatError(message(headline, *details, remedy="It has changed, or is damaged: open it anew."))


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
