"""Files Parquet: a column is a tensor, row groups are its chunks; pages are checksummed where the file says so."""

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

_MOST_BYTES = 2**26
"""Of a header that Thrift is allowed to make room for."""


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
        )
        schema, metadata = file.schema_arrow, file.metadata
        name = choose(schema.names, tensor, source.where)
        where = f"{source.where}, `{name}`"
        cell, dtype, inner = cell_of(schema.field(name).type, where)
        rows = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        kept = (None, *inner) if names is None and inner else names
        groups = _RowGroups(source, file, name, where)
        return named(ColumnStored(groups, Column(rows, cell, dtype, where), kept), name)
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
    def __init__(self, source: Ranges, file: Any, name: str, where: str) -> None:
        self._source, self._file, self._name, self._where = source, file, name, where

    def load(self, group: int) -> Array:
        try:
            return to_array(self._file.read_row_group(group, columns=[self._name]).column(self._name), self._where)
        except FormatError:
            raise
        except (pyarrow().ArrowException, OSError, ValueError, KeyError) as error:
            raise _damaged(f"{self._where}, row group {group}", error) from error

    def fingerprint(self) -> str:
        return self._source.fingerprint()

    def close(self) -> None:
        self._file.close()
        self._source.close()


def _damaged(where: str, error: Exception) -> FormatError:
    remedy = "Take a copy that is intact, or write it again."
    return FormatError(message(f"`{where}` cannot be read as Parquet", first_line(error)[:200], remedy=remedy))
