"""Databases of DuckDB, embedded: a table of numbers is a matrix, a column of it a vector; opened for reading alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.errors import StorageError, WrittenError, missing_package
from tapestry_jax.storage.files.ranges import of_file
from tapestry_jax.storage.protocols import Array, Beside, Box, Names, Stored
from tapestry_jax.storage.several import choose, named
from tapestry_jax.storage.tables.columns import (
    Column,
    ColumnStored,
    has_nulls,
    no_numbers,
    put,
    row_starts,
)
from tapestry_jax.storage.tables.sql import (
    cell_of_columns,
    columns_for,
    create_table,
    one_dtype,
    quoted,
    tables_of,
)
from tapestry_jax.storage.unfinished.regular import check_file

ROWS = 122_880
"""Of a row group of DuckDB."""
_BASE = 16 * 2**20
"""Bytes that a database may take for what it keeps of its file."""
_MORE = 4 * 2**20
"""Measured: what it takes beyond that."""
_OF_LOG = 8
"""So many times the bytes of its log, where there is one."""
_COLUMNS_AT_ONCE = 8
"""Of each two blocks of 256 KiB are held."""
_PIECES = 3
"""So many times the bytes of rows that come at once are there: as the database has them, and as arrays."""
_LEAST_ROWS = 2048
"""That are asked for at once, however wide they are: so many lie together, and fewer take as long."""
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
        described = Column(rows, cell, dtype, where)
        queries = [_query(table, part) for part in _parts([each for each, _ in columns])]
        return named(
            ColumnStored(_Table(database, path, queries, described, opened), described, names), tensor or table
        )
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
    """Rows of a table, asked for by their numbers, some rows and some columns at a time."""

    def __init__(self, database: Any, path: Path, queries: list[str], column: Column, opened: str) -> None:
        self._database, self._path, self._queries, self._column = database, path.absolute(), queries, column
        self._opened = opened

    def read(self, box: Box, into: Array) -> None:
        put(self._pieces(*box[0]), self._column, box, into)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        for begin in range(start, stop, self._step):
            end, done = min(begin + self._step, stop), 0
            piece = np.empty((end - begin, *self._column.cell), self._column.dtype)
            flat = piece.reshape(end - begin, -1)
            for query in self._queries:
                for column in self._asked(query, begin, end):
                    flat[:, done] = column
                    done += 1
            yield begin, piece

    @property
    def _step(self) -> int:
        return max(self._column.rows_at_once, _LEAST_ROWS)

    def _asked(self, query: str, begin: int, end: int) -> list[Array]:
        try:
            # A cursor of its own: rows are read on another thread than the one that opened.
            found = self._database.cursor().execute(query, [begin, end]).fetchnumpy()
        except duckdb().Error as error:
            raise _refused(self._column.where, error) from error
        number, *columns = map(np.ma.asarray, found.values())
        nulls = sum(int(np.ma.count_masked(column)) for column in columns)
        if nulls:
            raise has_nulls(self._column.where, nulls)
        # To sort what comes in order would take as much again.
        if not np.array_equal(np.asarray(number), np.arange(begin, end)):
            remedy = "Make it anew: CREATE TABLE kept AS SELECT * FROM it ORDER BY ..."
            details = f"expected rows {begin} to {end}, in order", f"got {len(number)} rows"
            raise FormatError(message(f"`{self._column.where}` gives other rows", *details, remedy=remedy))
        return [np.asarray(column) for column in columns]

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """What the database may take for itself, and rows as they come, column by column and together."""
        del sizes
        pieces = _PIECES * min(self._step * self._column.bytes_of_row, self._column.bytes)
        held = min(_memory(self._path) + _MORE, _OF_LOG * (_size(self._path) + _size(_log(self._path))))
        return Beside(held + pieces, "the memory of the database", "Store it as .npy, which needs nothing beside.")

    def fingerprint(self) -> str:
        if (found := _as_it_lies(self._path)) != self._opened:
            raise WrittenError(self._column.where)
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
        settings = {**_SETTINGS, "memory_limit": f"{_memory(path)}B"}
        return package.connect(str(path), read_only=True, config=settings)
    except package.Error as error:
        raise _refused(str(path), error) from error


def _query(table: str, columns: list[str]) -> str:
    listed = ", ".join(map(quoted, columns))
    return (
        f"SELECT rowid AS {quoted(_unlike(columns))}, {listed} FROM main.{quoted(table)} WHERE rowid >= ? AND rowid < ?"
    )


def _unlike(names: list[str]) -> str:
    """A name that no column has."""
    return "r" * (1 + max(map(len, names), default=0))


def _parts(columns: list[str]) -> list[list[str]]:
    """Columns that are asked for at once: of each the database holds blocks."""
    return [columns[start : start + _COLUMNS_AT_ONCE] for start in range(0, len(columns), _COLUMNS_AT_ONCE)]


def _memory(path: Path) -> int:
    """Bytes that a database may take: of a file the same for all that open it, as DuckDB wants it."""
    # What was committed last is not in the database yet, and is read into memory as a whole.
    return _BASE + _OF_LOG * _size(_log(path))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


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
