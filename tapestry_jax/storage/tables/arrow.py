"""Files of Arrow (IPC with a footer): a column is a tensor, record batches are its chunks."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import partial as given
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.boxes import count
from tapestry_jax.storage.dtypes import as_bytes
from tapestry_jax.storage.files.ranges import AsFile, Ranges
from tapestry_jax.storage.files.strided import Layout, between, read_box
from tapestry_jax.storage.protocols import Array, Beside, Box, Names, Stored
from tapestry_jax.storage.several import choose, named
from tapestry_jax.storage.tables.arrow_arrays import batches, cell_of, pyarrow, to_array
from tapestry_jax.storage.tables.arrow_laid import Batch, batches_of
from tapestry_jax.storage.tables.columns import PIECE, Column, ColumnStored, put

_KEPT = 8 * 2**20
"""Measured: bytes that the allocator of pyarrow keeps, whatever is given back to it."""
_TIMES = 6
"""So many times the bytes of a column may be there at most, as it lies there and decoded."""


def open_arrow(source: Ranges, tensor: str | None = None, names: Names | None = None) -> ColumnStored:
    """Open a column of a file. Of every batch the metadata are read, which say how many rows it has and where they lie.

    Raises:
      FormatError: for what is no such file, or a column that it does not have, or that holds no numbers.
    """
    arrow = pyarrow()
    try:
        file = arrow.ipc.open_file(AsFile(source))
        name = choose(file.schema.names, tensor, source.where)
        where, number = f"{source.where}, `{name}`", file.schema.get_field_index(name)
        if number < 0:
            raise KeyError(f"several columns are called {name}")
        cell, dtype, inner = cell_of(file.schema.field(number).type, where)
        bits = 1 if dtype == np.bool_ else 8 * dtype.itemsize
        laid = batches_of(source, file.schema, number, cell, bits)
        if laid is None or len(laid) != file.num_record_batches:
            whole = given(_decoded, file, where=where)
            laid = [Batch(whole(index).num_rows, None, source.size) for index in range(file.num_record_batches)]
        column = Column(tuple(batch.rows for batch in laid), cell, dtype, where)
        # Of a batch that is compressed all columns were decompressed.
        options = arrow.ipc.IpcReadOptions(included_fields=[number], use_threads=False)
        alone = arrow.ipc.open_file(AsFile(source), options=options)
        kept = (None, *inner) if names is None and inner else names
        return named(ColumnStored(_Batches(source, alone, name, column, laid), column, kept), name)
    except FormatError:
        source.close()
        raise
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
        source.close()
        raise _damaged(source.where, error) from error


def write_arrow(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write tensors as columns of a table, uncompressed.

    Raises:
      FormatError: as `batches`.
    """
    tables = batches(tensors)
    first = next(tables)
    with pyarrow().ipc.new_file(str(path), first.schema) as file:
        for table in itertools.chain([first], tables):
            file.write_table(table)


class _Batches:
    """Rows of a column: read where they lie, or decoded batch by batch where they are compressed."""

    def __init__(self, source: Ranges, file: Any, name: str, column: Column, laid: list[Batch]) -> None:
        self._source, self._file, self._name, self._column, self._laid = source, file, name, column, laid
        self._starts = [0, *itertools.accumulate(column.rows)]

    def read(self, box: Box, into: Array) -> None:
        (start, stop), rest, number = box[0], box[1:], bisect_right(self._starts, box[0][0]) - 1
        while start < stop:
            first, end = self._starts[number], min(stop, self._starts[number + 1])
            offset = self._laid[number].offset
            target, part = into[start - box[0][0] : end - box[0][0]], ((start, end), *rest)
            if offset is None:
                put(self._whole(number), self._column, part, target)
            elif self._column.dtype == np.bool_:
                put(self._bits(offset, first, start, end), self._column, part, target)
            else:
                read_box(self._source, self._layout(offset), ((start - first, end - first), *rest), target)
            start, number = end, number + 1

    def _layout(self, offset: int) -> Layout:
        return Layout.of(offset, (1, *self._column.cell), self._column.dtype)

    def _bits(self, offset: int, first: int, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Booleans, of which eight lie in a byte."""
        column = self._column
        cells = count(column.cell)
        for begin in range(start, stop, column.rows_at_once):
            low, high = (begin - first) * cells, (min(stop, begin + column.rows_at_once) - first) * cells
            raw = np.empty(-(-high // 8) - low // 8, np.uint8)
            self._source.read(offset + low // 8, as_bytes(raw))
            found = np.unpackbits(raw, bitorder="little")[low % 8 :][: high - low]
            yield begin, found.view(np.bool_).reshape(-1, *column.cell)

    def _whole(self, number: int) -> Iterator[tuple[int, Array]]:
        batch = _decoded(self._file, number, where=self._column.where)
        yield self._starts[number], to_array(batch.column(self._name), self._column.where)
        del batch
        pyarrow().default_memory_pool().release_unused()

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """A batch that is compressed, as it lies there and decoded; nothing of one that is not."""
        column, own = self._column, self._source.beside(count(sizes) * self._column.dtype.itemsize)
        apart = 2 * PIECE if column.dtype == np.bool_ else between(self._layout(0), sizes)
        decoded = [batch for batch in self._laid if batch.offset is None]
        if not decoded:
            return Beside(own.bytes + apart, own.what or "cells that lie apart", own.less) if apart else own
        rows = max(batch.rows for batch in decoded)
        size, lies = rows * column.bytes_of_row, max(batch.stored for batch in decoded)
        all_of_it = sum(batch.rows * column.bytes_of_row + batch.stored for batch in decoded)
        what = f"a batch of {rows:,} rows ({size / 2**20:.1f} MiB), decoded as a whole"
        less = "Write it in smaller batches, or without compression."
        return Beside(own.bytes + min(_KEPT + 2 * (size + lies), _TIMES * all_of_it), what, less)

    def fingerprint(self) -> str:
        return self._source.fingerprint()

    def close(self) -> None:
        self._source.close()


def _decoded(file: Any, number: int, *, where: str) -> Any:
    try:
        found = file.get_batch(number)
        found.validate()
    except (pyarrow().ArrowException, OSError, ValueError) as error:
        raise _damaged(f"{where}, batch {number}", error) from error
    return found


def _damaged(where: str, error: Exception) -> FormatError:
    remedy = "Take a copy that is intact, or write it again."
    return FormatError(message(f"`{where}` cannot be read as Arrow", first_line(error)[:200], remedy=remedy))
