"""Files Parquet: a column is a tensor, row groups are its chunks; pages are checksummed where the file says so."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.files.ranges import AsFile, LocalFile, Ranges
from tapestry_jax.storage.protocols import Array, Beside, Box, Names, Stored
from tapestry_jax.storage.several import choose, named
from tapestry_jax.storage.tables.arrow_arrays import batches, cell_of, pyarrow, to_array
from tapestry_jax.storage.tables.columns import PIECE, Column, ColumnStored, put
from tapestry_jax.storage.tables.pages import largest_page

_MOST_BYTES = 2**26
"""Of a header that Thrift is allowed to make room for."""
_BUFFER = 2**16
"""Bytes that are read at once, but for pages that are larger."""
_KEPT = 10 * 2**20
"""Measured: bytes that the allocator of pyarrow keeps, whatever is given back to it."""
_PIECES = 6
"""Measured: so many times the bytes of what is decoded at once are there: levels, builders, arrays."""


def open_parquet(source: Ranges, tensor: str | None = None, names: Names | None = None) -> ColumnStored:
    """Open a column of a file.

    Raises:
      FormatError: for what is no such file, or a column that it does not have, or that holds no numbers.
    """
    pyarrow()
    # A part of the package that `pyarrow()` found.
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(
            AsFile(source),
            page_checksum_verification=True,
            thrift_string_size_limit=_MOST_BYTES,
            thrift_container_size_limit=2**24,
            # Pages are read as they are decoded, and not all of a row group before.
            pre_buffer=False,
            buffer_size=_BUFFER,
        )
        schema, metadata = file.schema_arrow, file.metadata
        name = choose(schema.names, tensor, source.where)
        where = f"{source.where}, `{name}`"
        cell, dtype, inner = cell_of(schema.field(name).type, where)
        rows = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        kept = (None, *inner) if names is None and inner else names
        column = Column(rows, cell, dtype, where)
        return named(ColumnStored(_RowGroups(source, file, name, column), column, kept), name)
    except FormatError:
        source.close()
        raise
    except (pyarrow().ArrowException, OSError, ValueError, KeyError) as error:
        source.close()
        raise _damaged(source.where, error) from error


def write_parquet(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write tensors as columns of a table, checksummed page by page.

    Raises:
      FormatError: as `batches`.
    """
    tables = batches(tensors)
    first = next(tables)
    # A part of the package that `batches` found.
    import pyarrow.parquet as parquet

    with parquet.ParquetWriter(path, first.schema, write_page_checksum=True) as file:
        for table in itertools.chain([first], tables):
            file.write_table(table, row_group_size=max(1, table.num_rows))


class _RowGroups:
    """Rows of a column, decoded some at a time; where boxes come in order, each goes on where the last one ended."""

    def __init__(self, source: Ranges, file: Any, name: str, column: Column) -> None:
        self._source, self._file, self._name, self._column = source, file, name, column
        self._starts = [0, *itertools.accumulate(column.rows)]
        self._last, self._kept = (0, 0), None

    def read(self, box: Box, into: Array) -> None:
        put(self._pieces(*box[0]), self._column, box, into)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        kept, self._kept = self._kept, None
        # What is read against the order has no use for what was left, which would be one more for each of many files.
        goes_on = self._last[0] <= start <= self._last[1]
        self._last = start, stop
        group = bisect_right(self._starts, start) - 1
        while start < stop:
            last = self._starts[group + 1]
            if kept is None or kept.group != group or kept.first > start:
                kept = _Reading(group, self._starts[group], self._batches(group))
            yield from kept.until(start, min(stop, last))
            if goes_on and stop < last:
                self._kept = kept
            start, group = last, group + 1

    def _batches(self, group: int) -> Iterator[Array]:
        where, size = self._column.where, self._column.rows_at_once
        try:
            found = self._file.iter_batches(size, row_groups=[group], columns=[self._name], use_threads=False)
            for batch in found:
                yield to_array(batch.column(0), where)
                # It would keep what was decompressed for as long as it likes.
                pyarrow().default_memory_pool().release_unused()
        except FormatError:
            raise
        except (pyarrow().ArrowException, OSError, ValueError, KeyError) as error:
            raise _damaged(f"{where}, row group {group}", error) from error

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """Pages, as they lie there and decompressed, what is decoded of them, and what pyarrow keeps."""
        del sizes
        lies, holds, all_of_it = self._largest
        pages = 2 * (lies + holds) + _PIECES * PIECE
        column, rows = self._column, max((0, *self._column.rows))
        size = rows * column.bytes_of_row / 2**20
        what = f"pages of {holds / 2**20:.1f} MiB in row groups of {rows:,} rows ({size:.1f} MiB), decoded"
        less = "Write it with smaller pages or row groups (pyarrow: data_page_size=, row_group_size=), or as .npy."
        return Beside(min(_KEPT + pages, _PIECES * all_of_it), what, less)

    @cached_property
    def _largest(self) -> tuple[int, int, int]:
        """Bytes of the largest page, as it lies there and decompressed, and of the whole column, as both."""
        found = [0, 0, 0]
        for group in range(self._file.metadata.num_row_groups):
            described = self._file.metadata.row_group(group)
            for number in range(described.num_columns):
                chunk = described.column(number)
                if chunk.path_in_schema.partition(".")[0] == self._name.partition(".")[0]:
                    lies, holds, both = _sizes(self._source, chunk)
                    found = [max(found[0], lies), max(found[1], holds), found[2] + both]
        return found[0], found[1], found[2]

    def fingerprint(self) -> str:
        return self._source.fingerprint()

    def close(self) -> None:
        self._file.close()
        self._source.close()


class _Reading:
    """A row group that is being decoded: the piece that came last, and those that are to come."""

    def __init__(self, group: int, first: int, batches: Iterator[Array]) -> None:
        self.group, self.first, self._batches = group, first, batches
        self._piece: Array | None = None

    def until(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """The pieces that have rows from `start` to `stop`, of which none came before the last one that was given."""
        if self._piece is not None and self.first + len(self._piece) > start:
            yield self.first, self._piece
        while self.first + (0 if self._piece is None else len(self._piece)) < stop:
            self.first += 0 if self._piece is None else len(self._piece)
            self._piece = None
            if (found := next(self._batches, None)) is None:
                return
            self._piece = found
            if self.first + len(found) > start:
                yield self.first, found


def _sizes(source: Ranges, chunk: Any) -> tuple[int, int, int]:
    """Bytes of the largest page of a column in a row group, as it lies there and decompressed, and of all, as both."""
    stored, holds = int(chunk.total_compressed_size), int(chunk.total_uncompressed_size)
    begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    # Elsewhere each page would be a question of its own.
    found = largest_page(source, int(begin), stored) if isinstance(source, LocalFile) else None
    return (*(found or (stored, holds)), stored + holds)


def _damaged(where: str, error: Exception) -> FormatError:
    remedy = "Take a copy that is intact, or write it again."
    return FormatError(message(f"`{where}` cannot be read as Parquet", first_line(error)[:200], remedy=remedy))
