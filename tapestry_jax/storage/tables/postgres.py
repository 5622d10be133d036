"""Tables and queries of PostgreSQL, through ADBC: read as they are at one moment, written in one transaction.

Passwords are in addresses alone: no text, fingerprint or representation holds one.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from combinators.errors import FormatError, message, spelt
from tapestry_jax.storage.boxes import count
from tapestry_jax.storage.errors import StorageError, missing_package
from tapestry_jax.storage.places import Place
from tapestry_jax.storage.protocols import Array, Beside, Box, Names, Stored
from tapestry_jax.storage.several import choose, named
from tapestry_jax.storage.tables.arrow_arrays import cell_of, to_array
from tapestry_jax.storage.tables.columns import Column, ColumnStored, no_numbers, put, row_starts
from tapestry_jax.storage.tables.sql import (
    cell_of_columns,
    columns_for,
    create_table,
    one_dtype,
    quoted,
    rows_of,
    tables_of,
)
from tapestry_jax.storage.tables.waited import CODE, PATIENCE, SECONDS, WAITING, holders, in_use, own_name

_PIECES = 6
"""So many times the bytes of numbers that are fetched at once are there: as text and decoded, and as arrays."""
_OF_VALUE = 48
"""Bytes that the library of the server takes for each of them."""
_SECONDS = "10"
"""Until a server that does not answer is given up, where the address does not say."""
_DTYPES = {
    "bool": "BOOLEAN",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "REAL",
    "float64": "DOUBLE PRECISION",
}
_TABLES = """
  SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind = ANY ('{r,p,v,m,f}') AND pg_table_is_visible(c.oid)
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"""
# All reads see the rows of one moment, in the order in which one scan finds them, and write nothing.
_READING = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    WAITING,
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
)


def open_postgres(place: Place, tensor: str | None = None, names: Names | None = None) -> ColumnStored:
    """Open a table of the search path, or `table/column`; its rows are those of this moment until it is closed.

    A table of several columns of one dtype is a matrix, whose columns are in the order of the table.

    Raises:
      StorageError: where the database does not answer.
      FormatError: for a table or column that it does not have, or that holds other things than numbers.
    """
    with _reading(place) as database:
        tables = [str(name) for name in database.column(_TABLES)]
        name, _, column = (tensor, "", "") if tensor is None or tensor in tables else tensor.partition("/")
        table = choose(tables, name, place.text)
        where = f"{place.text}, `{tensor or table}`"
        database.table = table
        known = database.kinds(f"SELECT * FROM {quoted(table)}", where)
        chosen = [choose(known, column, f"{place.text}, `{table}`")] if column else list(known)
        asked = f"SELECT {', '.join(map(quoted, chosen))} FROM {quoted(table)}"
        return named(_stored(database, asked, where, names, is_table=not column), tensor or table)


def open_query(place: Place, text: str, names: Names | None = None) -> ColumnStored:
    """Open what a query of yours gives, as a table; say ORDER BY where the order of rows matters.

    Raises:
      StorageError: where the database does not answer.
      FormatError: for a query that it refuses, or that gives other things than numbers.
    """
    with _reading(place) as database:
        return _stored(database, text.strip().rstrip(";"), f"{place.text}, a query", names)


def write_postgres(place: Place, tensors: Mapping[str, Stored], *, overwrite: bool) -> None:
    """Write each tensor as a table of its name, all of them in one transaction.

    Raises:
      StorageError: where a table is there already and `overwrite` is not said, or the database does not answer.
      FormatError: for other tensors than vectors and matrices, or a dtype that the database does not hold.
    """
    columns = {name: columns_for(name, tensor, _DTYPES) for name, tensor in tensors.items()}
    with _closing(_Database(place)) as database:
        database.tell(WAITING)
        there = {*database.column(_TABLES)}
        for name, tensor in tensors.items():
            database.table = name
            if name in there and not overwrite:
                headline = f"`{place.text}` has a table {spelt(name)} already"
                raise StorageError(message(headline, remedy="Say overwrite=True, or choose another name."))
            database.tell(f"DROP TABLE {quoted(name)}" if name in there else None)
            database.tell(create_table(name, columns[name]))
            for table in tables_of(tensor, columns[name]):
                database.append(name, table)
        database.commit()


def _stored(
    database: _Database, query: str, where: str, names: Names | None, *, is_table: bool = False
) -> ColumnStored:
    kinds = database.kinds(query, where)
    if not kinds:
        raise no_numbers(where, "no column")
    dtype = one_dtype([*kinds.items()], where)
    (count,) = database.column(f"SELECT count(*) FROM ({query}\n) AS r")
    database.tell(f"DECLARE tapestry_rows SCROLL CURSOR FOR {query}")
    cell = cell_of_columns([*kinds]) if is_table or len(kinds) > 1 else ()
    step = Column((), cell, dtype, where).rows_at_once
    column = Column(row_starts(int(count), step), cell, dtype, where)
    return ColumnStored(_Rows(database, query, column, step), column, names)


class _Rows:
    """The rows of a query, through a cursor of the server's."""

    def __init__(self, database: _Database, query: str, column: Column, step: int) -> None:
        self._database, self._query, self._column, self._step = database, query, column, step
        self._fingerprint = ""

    def read(self, box: Box, into: Array) -> None:
        put(self._pieces(*box[0]), self._column, box, into)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        for begin in range(start - start % self._step, stop, self._step):
            table = self._database.fetched(begin, min(self._step, stop - begin))
            columns = [to_array(column, self._column.where) for column in table.columns]
            yield begin, rows_of(columns, self._column.cell)

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """Rows as they come: the answer of the server, what its library makes of it, and arrays."""
        del sizes
        rows = min(self._step, sum(self._column.rows))
        own = rows * (_PIECES * self._column.bytes_of_row + _OF_VALUE * count(self._column.cell))
        return Beside(own, f"{rows:,} rows that are fetched", "Save it as .npy first, which needs nothing beside.")

    def fingerprint(self) -> str:
        """The sum of hashes of the rows and their numbers; the server reads all of them once."""
        if not self._fingerprint:
            question = f"""
              SELECT count(*)::text || '.' || coalesce(sum(hashtextextended(t, n)::numeric), 0)::text FROM
              (SELECT r::text AS t, row_number() OVER () AS n FROM ({self._query}
              ) AS r) AS q"""
            (self._fingerprint,) = self._database.column(question)
        return str(self._fingerprint)

    def close(self) -> None:
        self._database.close()


class _Database:
    """A connection, used by one thread at a time.

    Attributes:
      table: that is asked for, for people; None of a query.
    """

    def __init__(self, place: Place) -> None:
        self._place, self._lock = place, Lock()
        self.table: str | None = None
        package = _package()
        try:
            self._connection = package.connect(_address(place), autocommit=False)
            self._cursor = self._connection.cursor()
            # Cursors of the server's cannot be read by COPY.
            self._cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        except package.Error as error:
            raise self._refused(error) from None
        self._end = weakref.finalize(self, _end, self._connection, self._cursor, os.getpid())

    def tell(self, *statements: str | None) -> None:
        """Run statements, one after the other."""
        with self._lock:
            for statement in filter(None, statements):
                self._run(statement)

    def column(self, question: str) -> list[Any]:
        """The first column of an answer."""
        with self._lock:
            return self._run(question).column(0).to_pylist()

    def kinds(self, query: str, where: str) -> dict[str, str]:
        """The dtypes of the columns of a query by their names, without its rows."""
        with self._lock:
            schema = self._run(f"SELECT * FROM ({query}\n) AS r LIMIT 0").schema
        found = {field.name: cell_of(field.type, f"{where}, `{field.name:.40}`")[1].name for field in schema}
        if len(found) != len(schema):
            remedy = "Give each a name of its own: SELECT a AS x, b AS y."
            raise FormatError(message(f"two columns of `{where}` have one name", remedy=remedy))
        return found

    def fetched(self, start: int, count: int) -> Any:
        """Rows of the cursor, as a table of Arrow."""
        with self._lock:
            self._run(f"MOVE ABSOLUTE {start} IN tapestry_rows")
            return self._run(f"FETCH FORWARD {count} FROM tapestry_rows")

    def append(self, table: str, rows: Any) -> None:
        """Write rows behind those of a table."""
        with self._lock:
            try:
                self._cursor.adbc_ingest(table, rows, mode="append")
            except _package().Error as error:
                raise self._refused(error) from None

    def commit(self) -> None:
        """Let others see what was written."""
        try:
            self._connection.commit()
        except _package().Error as error:
            raise self._refused(error) from None

    def close(self) -> None:
        """Let it go."""
        with self._lock:
            self._end()

    def _run(self, statement: str) -> Any:
        try:
            self._cursor.execute(statement)
            return self._cursor.fetch_arrow_table()
        except _package().Error as error:
            # Not `from error`: its text may hold the address.
            raise (self._in_use() if error.sqlstate == CODE else self._refused(error)) from None

    def _in_use(self) -> FormatError:
        """The error of a lock that did not come: who holds it is asked behind the end of the transaction."""
        try:
            self._connection.rollback()
        except _package().Error as error:
            return self._refused(error)
        (patience,) = self._run(PATIENCE).column(0).to_pylist()
        held = self._run(holders(self.table)).column(0).to_pylist()
        return in_use(self._place.text, self.table, SECONDS + " s" if patience == "0" else patience, held)

    def _refused(self, error: Exception) -> FormatError:
        text = _said(error, self._place)
        if type(error).__name__ in ("OperationalError", "InternalError"):
            remedy = "See whether the server runs, and to its address, user and password."
            return StorageError(message(f"`{self._place.text}` does not answer", text, remedy=remedy))
        remedy = "See to what was asked for, and whether this user may read it."
        return FormatError(message(f"`{self._place.text}` refuses", text, remedy=remedy))


@contextmanager
def _reading(place: Place) -> Generator[_Database]:
    database = _Database(place)
    try:
        database.tell(*_READING)
        yield database
    except BaseException:
        database.close()
        raise


@contextmanager
def _closing(database: _Database) -> Generator[_Database]:
    try:
        yield database
    finally:
        database.close()


def _end(connection: Any, cursor: Any, process: int) -> None:
    # After a fork the socket is the other process's: closing it here would end what that one reads.
    if os.getpid() == process:
        cursor.close()
        connection.close()


def _package() -> Any:
    try:
        # An extra: few programs read databases.
        import adbc_driver_postgresql.dbapi as found
    except ModuleNotFoundError as error:
        raise missing_package("PostgreSQL", "adbc-driver-postgresql", "postgres") from error
    return found


def _address(place: Place) -> str:
    """The address, with a time after which a server that does not answer is given up, and who asks."""
    parts = urlsplit(str(place.address))
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {"connect_timeout": _SECONDS, "application_name": own_name()}
    return parts._replace(query=urlencode({**ours, **asked}, quote_via=quote)).geturl()


def _said(error: Exception, place: Place) -> str:
    """What the server or its library says, on one line, without what the address holds beside host and database."""
    text = " ".join(str(error).split())
    text = text.partition(": ERROR: ")[2] or text.partition(" failed: ")[2] or text
    parts = urlsplit(str(place.address))
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    secrets = {user, password, parts.query, *(each for pair in parse_qsl(parts.query, True) for each in pair)}
    for secret in sorted({*secrets, *map(unquote, secrets)} - {""}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "...", text)
    return text[:300]
