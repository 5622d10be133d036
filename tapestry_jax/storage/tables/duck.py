"""Databases of DuckDB, embedded: a table of numbers is a matrix, a column of it a vector; opened for reading alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.errors import StorageError, WrittenError, missing_package
from tapestry_jax.storage.files.ranges import of_file
from tapestry_jax.storage.protocols import Array, Names, Stored
from tapestry_jax.storage.several import choose, named
from tapestry_jax.storage.tables.columns import Column, ColumnStored, has_nulls, no_numbers, row_starts
from tapestry_jax.storage.tables.sql import (
    cell_of_columns,
    columns_for,
    create_table,
    one_dtype,
    quoted,
    rows_of,
    tables_of,
)
from tapestry_jax.storage.unfinished.regular import check_file

ROWS = 122_880
"""Of a row group of DuckDB."""
_DTYPES = {
    "BOOLEAN": "bool",
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINTEGER": "uint32",
    "UBIGINT": "uint64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
}
_TABLES = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' ORDER BY 1"
_COLUMNS = """
  SELECT column_name, data_type FROM duckdb_columns()
  WHERE schema_name = 'main' AND table_name = ? ORDER BY column_index"""
# Nothing that a database says reads other files, loads extensions, or changes these settings again.
_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
    "threads": "1",
}


def duckdb() -> Any:
    """The package.

    Raises:
      StorageError: where it is not installed.
    """
    try:
        # An extra, of 50 MB: few programs read databases.
        import duckdb as found
    except ModuleNotFoundError as error:
        raise missing_package("this format", "duckdb", "fabric") from error
    return found


def open_duck(path: Path, tensor: str | None = None, names: Names | None = None) -> ColumnStored:
    """Open a table, or `table/column`.

    A table of several columns of one dtype is a matrix, whose columns are in the order of the table. Rows are in the
    order in which they were inserted.

    Raises:
      StorageError: where there is no database, or another process writes it.
      FormatError: for a table or column that it does not have, that holds other things than numbers, or rows of which
        some were deleted.
    """
    opened = _as_it_lies(path) if path.is_file() else ""
    database = connected(path)
    try:
        tables = [row[0] for row in _rows(database, _TABLES)]
        name, _, column = (tensor, "", "") if tensor is None or tensor in tables else tensor.partition("/")
        table = choose(tables, name, str(path))
        columns = _columns(database, table, column or None, str(path))
        where = f"{path}, `{tensor or table}`"
        dtype = _dtype(columns, where)
        rows = row_starts(_count(database, table, where), ROWS)
        cell = () if column else cell_of_columns([each for each, _ in columns])
        groups = _Table(database, path, _query(table, [each for each, _ in columns]), where, opened, cell)
        return named(ColumnStored(groups, Column(rows, cell, dtype, where), names), tensor or table)
    except FormatError:
        database.close()
        raise
    except duckdb().Error as error:
        database.close()
        raise _refused(str(path), error) from error


def write_duck(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write each tensor as a table of its name: a vector as the column `value`, a matrix as columns `c0`, `c1`, ...

    Raises:
      FormatError: for other tensors, or a dtype that the format does not hold.
    """
    # Beside the database DuckDB keeps what is not in it yet: of a killed process, it would be taken for a part of this.
    beside = _log(path)
    beside.unlink(missing_ok=True)
    try:
        # Closed by the end of it, which may write: a full disk is told there, too.
        with duckdb().connect(str(path)) as database:
            for name, tensor in tensors.items():
                _write_table(database, name, tensor)
            database.execute("CHECKPOINT")
    except duckdb().Error as error:
        raise _refused(str(path), error) from error
    finally:
        beside.unlink(missing_ok=True)


def _write_table(database: Any, name: str, tensor: Stored) -> None:
    columns = columns_for(name, tensor, {np.dtype(dtype).name: kind for kind, dtype in _DTYPES.items()})
    database.execute(create_table(name, columns))
    for table in tables_of(tensor, columns):
        database.register("_piece", table)
        database.execute(f"INSERT INTO {quoted(name)} SELECT * FROM _piece")
        database.unregister("_piece")


class _Table:
    def __init__(self, database: Any, path: Path, query: str, where: str, opened: str, cell: tuple[int, ...]) -> None:
        self._database, self._path, self._query, self._where = database, path.absolute(), query, where
        self._opened, self._cell = opened, cell

    def load(self, group: int) -> Array:
        try:
            # A cursor of its own: rows are read on another thread than the one that opened.
            found = self._database.cursor().execute(self._query, [group * ROWS, (group + 1) * ROWS]).fetchnumpy()
        except duckdb().Error as error:
            raise _refused(self._where, error) from error
        columns = [np.ma.asarray(column) for column in found.values()]
        nulls = sum(int(np.ma.count_masked(column)) for column in columns)
        if nulls:
            raise has_nulls(self._where, nulls)
        return rows_of([np.asarray(column) for column in columns], self._cell)

    def fingerprint(self) -> str:
        if (found := _as_it_lies(self._path)) != self._opened:
            raise WrittenError(self._where)
        return found

    def close(self) -> None:
        self._database.close()


def _as_it_lies(path: Path) -> str:
    log = _log(path)
    return f"{of_file(path)}:{of_file(log)}" if log.exists() else of_file(path)


def _log(path: Path) -> Path:
    """What was committed last may lie beside a database."""
    return path.with_name(f"{path.name}.wal")


def connected(path: Path) -> Any:
    """A connection that reads this database alone.

    Raises:
      StorageError: where there is none, or what lies beside it is no file.
      FormatError: where DuckDB cannot read it.
    """
    package = duckdb()
    if not path.is_file():
        raise StorageError(message(f"no database lies at `{path}`", remedy="Look at the path."))
    check_file(_log(path))
    try:
        return package.connect(str(path), read_only=True, config=_SETTINGS)
    except package.Error as error:
        raise _refused(str(path), error) from error


def _query(table: str, columns: list[str]) -> str:
    listed = ", ".join(map(quoted, columns))
    return f"SELECT {listed} FROM main.{quoted(table)} WHERE rowid >= ? AND rowid < ? ORDER BY rowid"


def _columns(database: Any, table: str, column: str | None, where: str) -> list[tuple[str, str]]:
    found = [(str(name), str(kind)) for name, kind in _rows(database, _COLUMNS, [table])]
    if column is None:
        return found
    name = choose([name for name, _ in found], column, f"{where}, `{table}`")
    return [each for each in found if each[0] == name]


def _dtype(columns: list[tuple[str, str]], where: str) -> Any:
    if {kind for _, kind in columns} <= _DTYPES.keys():
        return one_dtype([(name, _DTYPES[kind]) for name, kind in columns], where)
    raise no_numbers(where, ", ".join(f"{name:.40}: {kind:.40}" for name, kind in columns))


def _count(database: Any, table: str, where: str) -> int:
    (count, last), *_ = _rows(database, f"SELECT count(*), coalesce(max(rowid) + 1, 0) FROM main.{quoted(table)}")
    if count != last:
        remedy = "Make it anew: CREATE TABLE kept AS SELECT * FROM it."
        raise FormatError(message(f"rows of `{where}` were deleted", f"{count} of {last} are left", remedy=remedy))
    return int(count)


def _rows(database: Any, text: str, values: list[Any] | None = None) -> list[Any]:
    return database.execute(text, values or []).fetchall()


def _refused(where: str, error: Exception) -> FormatError:
    text = first_line(error)[:200]
    if "IOException" in text and "lock" in text.lower():
        remedy = "Wait until the other process has closed it."
        return StorageError(message(f"`{where}` is written by another process", text, remedy=remedy))
    if re.search(r"No space left|File too large|Disk quota|Could not write", str(error)):
        return StorageError(message(f"no room for `{where}`", text, remedy="Make room, or choose another place."))
    if re.search(r"Permission denied|Is a directory|No such file", text):
        return StorageError(message(f"`{where}` cannot be opened by DuckDB", text, remedy="See to the path."))
    remedy = "Take a copy that is intact, or write it again."
    return FormatError(message(f"`{where}` cannot be read by DuckDB", text, remedy=remedy))
