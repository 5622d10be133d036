"""Files of Arrow (IPC with a footer): a column is a tensor, record batches are its chunks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.files.ranges import AsFile, Ranges
from tapestry_jax.storage.protocols import Array, Names, Stored
from tapestry_jax.storage.several import choose, named
from tapestry_jax.storage.tables.arrow_arrays import batches, cell_of, pyarrow, to_array
from tapestry_jax.storage.tables.columns import Column, ColumnStored


def open_arrow(source: Ranges, tensor: str | None = None, names: Names | None = None) -> ColumnStored:
    """Open a column of a file. Every batch is looked at once, for how many rows it has.

    Raises:
      FormatError: for what is no such file, or a column that it does not have, or that holds no numbers.
    """
    arrow = pyarrow()
    try:
        file = arrow.ipc.open_file(AsFile(source))
        name = choose(file.schema.names, tensor, source.where)
        where = f"{source.where}, `{name}`"
        cell, dtype, inner = cell_of(file.schema.field(name).type, where)
        batches = _Batches(source, file, name, where)
        rows = tuple(batches.batch(number).num_rows for number in range(file.num_record_batches))
        kept = (None, *inner) if names is None and inner else names
        return named(ColumnStored(batches, Column(rows, cell, dtype, where), kept), name)
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
    def __init__(self, source: Ranges, file: Any, name: str, where: str) -> None:
        self._source, self._file, self._name, self._where = source, file, name, where

    def batch(self, number: int) -> Any:
        try:
            found = self._file.get_batch(number)
            found.validate()
        except (pyarrow().ArrowException, OSError, ValueError) as error:
            raise _damaged(f"{self._where}, batch {number}", error) from error
        return found

    def load(self, group: int) -> Array:
        return to_array(self.batch(group).column(self._name), self._where)

    def fingerprint(self) -> str:
        return self._source.fingerprint()

    def close(self) -> None:
        self._source.close()


def _damaged(where: str, error: Exception) -> FormatError:
    remedy = "Take a copy that is intact, or write it again."
    return FormatError(message(f"`{where}` cannot be read as Arrow", first_line(error)[:200], remedy=remedy))
