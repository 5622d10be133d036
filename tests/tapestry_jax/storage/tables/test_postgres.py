"""Tables and queries of a real server of PostgreSQL, which these tests start and stop."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import query, save, stored
from tapestry_jax.storage.tables import postgres
from tests.tapestry_jax.storage.round_trips import boxes, numbers, read
from tests.tapestry_jax.storage.tables.server import PASSWORD, address, programs, server

dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="needs adbc-driver-postgresql")
FOLDER = programs()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="no PostgreSQL is installed: apt-get install postgresql")
DTYPES = ["bool", "int16", "int32", "int64", "float32", "float64"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    assert FOLDER is not None
    with server(FOLDER) as found:
        yield found


@pytest.fixture
def place(port: int) -> Iterator[str]:
    yield address(port)
    tell(address(port), "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


def tell(place: str, *statements: str) -> list[tuple[Any, ...]]:
    """What the driver does without us; the rows of the last answer."""
    with dbapi.connect(place, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def refused(kind: type[Exception], call: Any) -> str:
    """What an error says, all of its traceback, which holds no password."""
    with pytest.raises(kind) as raised:
        call()
    told = "".join(traceback.format_exception(raised.value))
    assert not any(secret in told for secret in (PASSWORD, "s3cret", "p@ss", "p%40ss"))
    return str(raised.value)


@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=[pytest.mark.thorough] * (d in ("int32", "float32"))) for d in DTYPES]
)
def test_tables_are_read_and_written(place: str, dtype: str):
    x = numbers((7, 3), dtype)
    kinds = {
        "bool": "bool",
        "int16": "int2",
        "int32": "int4",
        "int64": "int8",
        "float32": "float4",
        "float64": "float8",
    }
    rows = ", ".join(f"({', '.join(str(cell) for cell in row)})" for row in x.tolist())
    tell(
        place, f"CREATE TABLE t (a {kinds[dtype]}, b {kinds[dtype]}, c {kinds[dtype]})", f"INSERT INTO t VALUES {rows}"
    )
    table = tp.open(place, "t", names=("row", "col"))
    assert (table.shape, table.dtype, table.names) == ((7, 3), np.dtype(dtype), ("row", "col"))
    np.testing.assert_array_equal(read(table), x)
    column = tp.open(place, "t/b")
    np.testing.assert_array_equal(read(column), x[:, 1])
    table.close()
    column.close()
    save(place, {"matrix": stored(x), "vector": stored(x[:, 0])})
    assert [list(row) for row in tell(place, "SELECT * FROM matrix")] == x.tolist()
    assert [row[0] for row in tell(place, "SELECT value FROM vector")] == x[:, 0].tolist()


def test_rows_are_fetched_in_groups(place: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(postgres, "ROWS", 4)
    x = numbers((11, 2), np.float64)
    save(place, {"x": stored(x)})
    source = tp.open(place)  # the only table
    assert source.chunks == (4, 2)
    for box in boxes(x.shape):
        np.testing.assert_array_equal(read(source, box), x[tuple(slice(a, b) for a, b in box)])
    source.close()
    save(place, {"none": stored(np.zeros((0, 2), np.float32))})
    empty = tp.open(place, "none")
    assert empty.shape == (0, 2)
    assert empty.fingerprint().endswith(":0.0")
    empty.close()


def test_what_is_open_is_of_one_moment(place: str):
    x = numbers((5, 2))
    save(place, {"x": stored(x)})
    source = tp.open(place, "x")
    tell(place, "UPDATE x SET c0 = 99", "DELETE FROM x WHERE c1 > 3")
    np.testing.assert_array_equal(read(source), x)
    first = source.fingerprint()
    source.close()
    found = [first]
    for change in ("SELECT 1", "INSERT INTO x VALUES (1, 2), (3, 4)", "UPDATE x SET c0 = 5 WHERE c0 = 1"):
        tell(place, change)
        again = tp.open(place, "x")
        found.append(again.fingerprint())
        again.close()
    assert len({*found}) == 4
    # The same rows in another order are another tensor.
    tell(place, "CREATE TABLE a (v int)", "INSERT INTO a VALUES (1), (2)", "CREATE TABLE b (v int)")
    tell(place, "INSERT INTO b VALUES (2), (1)")
    both = [tp.open(place, "a"), tp.open(place, "b")]
    assert both[0].fingerprint() != both[1].fingerprint()
    for each in both:
        each.close()


def test_queries_are_read(place: str):
    tell(place, "CREATE TABLE t (n int, v float8)", "INSERT INTO t SELECT i, i * 0.5 FROM generate_series(1, 9) AS i")
    source = query(place, "SELECT v, v * 2 AS w FROM t WHERE n > 5 ORDER BY n DESC -- the last", names=("row", None))
    assert (source.shape, source.names) == ((4, 2), ("row", None))
    assert read(source).tolist() == [[4.5, 9.0], [4.0, 8.0], [3.5, 7.0], [3.0, 6.0]]
    source.close()
    source = query(place, "WITH t2 AS (SELECT n FROM t) SELECT sum(n) AS n FROM t2 WHERE n % 2 = 0;")
    assert (source.shape, source.dtype, read(source).tolist()) == ((1,), np.int64, [20])
    source.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT 1; DROP TABLE kept", "syntax error"),
        ("SELECT 1) AS r; DROP TABLE kept; SELECT * FROM (SELECT 1", "multiple commands"),
        ("DELETE FROM kept RETURNING v", "syntax error"),
        ("WITH gone AS (DELETE FROM kept RETURNING v) SELECT * FROM gone", "must be at the top level"),
        ("SELECT nextval('numbers')", "read-only transaction"),
        ("SELECT", "is no column of numbers"),
        ("SELECT v, v FROM kept", "two columns of"),
        ("SELECT v AS a, v::float8 AS b FROM kept", "have several dtypes"),
        ("SELECT 'text' AS v", "is no column of numbers"),
        ("SELECT 1.5 AS v", "is no column of numbers"),
        ("SELECT ARRAY[1, 2] AS v", "is no column of numbers"),
        ("SELECT * FROM nothing", 'relation "nothing" does not exist'),
        (7, "query takes the address of a database, and a text"),
    ],
)
def test_queries_write_nothing_and_are_refused_in_our_words(place: str, text: Any, told: str):
    tell(place, "CREATE TABLE kept (v int)", "INSERT INTO kept VALUES (1), (2)", "CREATE SEQUENCE numbers")
    assert told in refused(tp.FormatError, lambda: read(query(place, text)))
    assert tell(place, "SELECT count(*) FROM kept") == [(2,)]


@pytest.mark.parametrize(
    "name",
    [
        *('t"; DROP TABLE kept; --', "%s"),
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("select", "x/y", "a'b", "naïve name", "1", "$1")),
    ],
)
def test_names_of_tables_and_columns_are_no_sql(place: str, name: str):
    x = numbers((3, 2))
    save(place, {"kept": stored(x[:, 0]), name: stored(x)})
    source = tp.open(place, name)
    np.testing.assert_array_equal(read(source), x)
    source.close()
    assert tell(place, "SELECT count(*) FROM kept") == [(3,)]
    quoted = name.replace('"', '""')
    tell(place, "CREATE TABLE other (v int)", f'ALTER TABLE other RENAME COLUMN v TO "{quoted}"')
    source = tp.open(place, f"other/{name}")
    assert source.shape == (0,)
    source.close()
    for wrong in (f"{name}; DROP TABLE kept", 'kept"; DROP TABLE kept; --', "kept/value; DROP TABLE kept", "kept', 'x"):
        assert "holds no such tensor" in refused(tp.FormatError, lambda wrong=wrong: tp.open(place, wrong))
    assert tell(place, "SELECT count(*) FROM kept") == [(3,)]


def test_rows_without_a_number_are_told(place: str):
    tell(place, "CREATE TABLE t (v int)", "INSERT INTO t VALUES (1), (NULL)")
    source = tp.open(place, "t")
    assert "has rows without a number" in refused(tp.FormatError, lambda: read(source))
    source.close()


def test_all_tables_are_written_or_none(place: str):
    x = numbers((3, 2))
    save(place, {"x": stored(x)})
    assert "has a table 'x' already" in refused(tp.StorageError, lambda: save(place, {"y": stored(x), "x": stored(x)}))
    wrong = {"x": stored(x + 1), "y": stored(x.astype(np.uint8))}
    assert "a table cannot hold `y`" in refused(tp.FormatError, lambda: save(place, wrong, overwrite=True))

    class Lost(type(stored(x))):
        def read(self, box: Any, into: Any) -> Any:
            raise tp.FormatError("it is gone")

    some = {"x": stored(x + 1), "z": Lost(x, None)}
    assert refused(tp.FormatError, lambda: save(place, some, overwrite=True)) == "it is gone"
    assert tell(place, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'") == [("x",)]
    np.testing.assert_array_equal(read(tp.open(place)), x)
    save(place, {"x": stored(x + 1)}, overwrite=True)
    np.testing.assert_array_equal(read(tp.open(place)), x + 1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("127.0.0.1", "127.0.0.1:1/x?was="), "does not answer"),
        (("tapestry:", "tapestry:wrong"), "password authentication failed"),
        (("/postgres", "/nothing"), 'database "nothing" does not exist'),
        (("/postgres", "/postgres?s3cret=1"), "invalid URI query parameter"),
        (("/postgres", "/postgres?password=s3cret&sslmode=wrong"), "Failed to connect"),
        (("127.0.0.1:", "127.0.0.1:x"), "tp.open cannot read this address"),
        (("tapestry:", "tapestry:%zz"), "invalid percent-encoded token"),
    ],
)
def test_a_database_that_does_not_answer_is_told_without_its_password(place: str, change: tuple[str, str], told: str):
    where = place.replace(*change)
    if "?was=" in where:
        where = where.partition("?was=")[0]
    assert told in refused(tp.FormatError, lambda: tp.open(where, "x"))
    assert told.replace("tp.open", "save") in refused(tp.FormatError, lambda: save(where, {"x": stored(numbers((2,)))}))


def test_a_server_that_goes_away_is_told(place: str):
    save(place, {"x": stored(numbers((3, 2)))})
    source = tp.open(place, "x")
    tell(place, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert "does not answer" in refused(tp.StorageError, lambda: read(source))
    source.close()


@contextmanager
def another(place: str, statement: str) -> Iterator[None]:
    """A transaction of somebody else that stays open."""
    called = f"{place}?application_name=another"
    with dbapi.connect(called, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        yield


SHORT = "?options=-c%20lock_timeout%3D200ms"


def test_a_table_that_somebody_has_open_is_not_waited_for_without_end(place: str):
    x = numbers((3, 2))
    save(place, {"x": stored(x)})
    source = tp.open(place, "x")
    told = refused(tp.StorageError, lambda: save(place + SHORT, {"x": stored(x + 1)}, overwrite=True))
    own = f"tapestry_jax, process {os.getpid()} on {socket.gethostname()} (process "
    assert told.startswith("the table `x` of `postgresql://127.0.0.1") and "waited 200ms for " + own in told
    assert "Close what this process has open of it, x.close(), and try again." in told
    np.testing.assert_array_equal(read(source), x)
    source.close()
    with another(place, "SELECT * FROM x"):
        told = refused(tp.StorageError, lambda: save(place + SHORT, {"x": stored(x + 1)}, overwrite=True))
        assert "waited 200ms for another (process " in told and "Try again when they have closed it" in told
    np.testing.assert_array_equal(read(tp.open(place, "x")), x)


def test_a_table_that_somebody_writes_is_not_waited_for_without_end(place: str):
    x = numbers((3, 2))
    save(place, {"x": stored(x)})
    with another(place, "DROP TABLE x"):
        for ask in (lambda: tp.open(place + SHORT, "x"), lambda: query(place + SHORT, "SELECT * FROM x")):
            assert "is in use\n  waited 200ms for another (process " in refused(tp.StorageError, ask)
        assert "a table of the query of" in refused(tp.StorageError, lambda: query(place + SHORT, "TABLE x"))
    np.testing.assert_array_equal(read(tp.open(place, "x")), x)


def test_a_table_is_waited_for_as_long_as_is_said(place: str, monkeypatch: pytest.MonkeyPatch):
    save(place, {"x": stored(numbers((3, 2)))})
    source = tp.open(place, "x")
    monkeypatch.setattr(postgres, "WAITING", postgres.WAITING.replace("10s", "100ms"))
    told = refused(tp.StorageError, lambda: save(place, {"x": stored(numbers((1,)))}, overwrite=True))
    assert "waited 10 s for" in told
    threading.Timer(0.5, source.close).start()
    save(f"{place}?options=-c%20lock_timeout%3D30s", {"x": stored(numbers((1,)))}, overwrite=True)
    assert tp.open(place, "x").shape == (1,)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_a_matrix_of_one_column_is_none_of_numbers(place: str, shape: tuple[int, ...]):
    x = np.arange(3, dtype=np.float32).reshape(shape)
    save(place, {"x": stored(x)})
    np.testing.assert_array_equal(read(tp.open(place, "x")), x)


def test_streams_and_fabrics_read_and_write_databases_and_keep_no_password(place: str, tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    save(place, {"x": stored(x)})
    source = tp.open(place, "x", names=("row", "col"))
    mean = tp.stream(tp.fold(tp.aggregators.Mean(), "row col -> col"), {"row": tp.chunks(size=8)}, [source]).run()
    np.testing.assert_allclose(np.asarray(mean), x.mean(0), rtol=1e-6)
    assert "s3cret" not in repr(source) + repr(source.opened) + source.where  # type: ignore[attr-defined]
    source.close()
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", place, "x", names=("row", "col"))
        np.testing.assert_array_equal(fabric.read("x"), x)
        fabric.load("q", query(place, "SELECT c0 FROM x ORDER BY c0"))
        np.testing.assert_array_equal(fabric.read("q"), np.sort(x[:, 0]))
        fabric.export("q", place)
        np.testing.assert_array_equal(read(tp.open(place, "q")), np.sort(x[:, 0]))
        assert "is there already" not in refused(tp.StorageError, lambda: fabric.export("q", place))
        fabric.export("q", place, overwrite=True)
        assert "s3cret" not in f"{fabric.describe('x')}"
        for block in (tmp_path / "f" / "blocks").glob("*/[0-9]*"):
            block.write_bytes(b"")
        assert "which is not asked again" in refused(tp.FabricError, lambda: fabric.recover("x"))
        refused(tp.FormatError, lambda: fabric.load("y", place, "nothing"))
    for file in (tmp_path / "f").rglob("*"):
        assert not file.is_file() or (b"s3cret" not in (held := file.read_bytes()) and b"tapestry:" not in held)
