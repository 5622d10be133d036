"""Columns of tables that PyArrow and DuckDB wrote, read as tensors; what is no tensor is refused."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tapestry_jax.storage.tables.arrow_arrays import from_array
from tapestry_jax.storage.tables.duck import connected, quoted
from tests.nobody import as_nobody
from tests.tapestry_jax.storage.round_trips import boxes, numbers, read

PLAIN = ["bool", "int8", "uint16", "int64", "uint64", "float16", "float32", "float64"]


def written(path: Path, table: pa.Table, rows: int = 4) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows, write_page_checksum=True)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=rows)
    return path


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
@pytest.mark.parametrize("dtype", PLAIN)
def test_plain_columns_are_read(tmp_path: Path, name: str, dtype: str):
    x = numbers((10,), dtype)
    source = tp.open(written(tmp_path / name, pa.table({"x": x, "label": ["a"] * 10})), "x")
    assert (source.dtype, source.chunks) == (x.dtype, (4,))
    for box in boxes(x.shape):
        np.testing.assert_array_equal(read(source, box), x[box[0][0] : box[0][1]])
    source.close()


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
@pytest.mark.parametrize("shape", [(0, 2), (5, 3), (7, 2, 3)], ids=str)
def test_fixed_shape_tensors_are_read(tmp_path: Path, name: str, shape: tuple[int, ...]):
    x = numbers(shape)
    column = from_array(x, (None, *"abc"[: len(shape) - 1]))
    source = tp.open(written(tmp_path / name, pa.table({"x": column}), 2))
    assert source.shape == shape and source.chunks == (min(2, max(1, shape[0])), *shape[1:])
    assert source.names == (None, *"abc"[: len(shape) - 1])
    np.testing.assert_array_equal(read(source), x)
    np.testing.assert_array_equal(source.shape[:0] or read(source)[1:, :1], x[1:, :1])
    source.close()


def test_lists_of_a_fixed_size_and_files_of_feather_are_read(tmp_path: Path):
    x = numbers((6, 3), np.int32)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)})
    feather.write_feather(table, str(tmp_path / "x.feather"), compression="uncompressed")
    np.testing.assert_array_equal(read(tp.open(tmp_path / "x.feather")), x)
    sliced = written(tmp_path / "x.arrow", table.slice(2, 3))
    np.testing.assert_array_equal(read(tp.open(sliced)), x[2:5])


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.array(["a", "b"]), "no column of numbers"),
        (pa.array([[1], [2, 3]]), "no column of numbers"),
        (pa.array([1, 2], pa.timestamp("s")), "no column of numbers"),
        (pa.array([1.0, None]), "has rows without a number"),
        (pa.array([[1, None], [2, 3]], pa.list_(pa.int32(), 2)), "has rows without a number"),
    ],
)
def test_columns_that_are_no_tensors_are_refused(tmp_path: Path, name: str, column: pa.Array, told: str):
    with pytest.raises(tp.FormatError, match=told):
        read(tp.open(written(tmp_path / name, pa.table({"x": column}))))


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_which_column_is_said_where_there_are_several(tmp_path: Path, name: str):
    path = written(tmp_path / name, pa.table({"x": [1.0], "y": [2.0]}))
    with pytest.raises(tp.FormatError, match="holds several tensors\n  it holds `x`, `y`\n  got no name\n  Name one"):
        tp.open(path)
    with pytest.raises(tp.FormatError, match="holds no such tensor\n  it holds `x`, `y`\n  got 'z'"):
        tp.open(path, "z")


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_damaged_tables_are_refused_or_read_right(tmp_path: Path, name: str):
    x = np.arange(200.0)
    whole = written(tmp_path / name, pa.table({"x": x}), 50).read_bytes()
    refused = 0
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        (tmp_path / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = read(tp.open(tmp_path / name, "x"))
        except tp.FormatError:
            refused += 1
        else:
            # Arrow has no checksums: numbers that were changed are other numbers.
            assert name == "t.arrow" or np.array_equal(found, x)
    assert refused > 10
    for at in (0, 3, len(whole) // 2, len(whole) - 1):
        (tmp_path / name).write_bytes(whole[:at])
        with pytest.raises(tp.FormatError, match="cannot be read as"):
            tp.open(tmp_path / name)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    connection = duckdb.connect(str(tmp_path / "db.duckdb"))
    yield connection
    connection.close()


def test_tables_of_a_database_are_matrices_and_columns_vectors(tmp_path: Path, database: Any):
    x = np.random.default_rng(0).random((300_000, 2)).astype(np.float32)
    database.register("given", pa.table({"a": x[:, 0], "b": x[:, 1]}))
    database.execute("CREATE TABLE t AS SELECT * FROM given")
    database.execute("CREATE TABLE mixed (i INTEGER, d DOUBLE, s VARCHAR)")
    database.execute("INSERT INTO mixed VALUES (1, 2.5, 'x'), (3, 4.5, 'y')")
    database.close()
    table = tp.open(tmp_path / "db.duckdb", "t", names=("row", "column"))
    assert (table.shape, table.chunks, table.names) == ((300_000, 2), (122_880, 2), ("row", "column"))
    np.testing.assert_array_equal(read(table, ((122_000, 260_001), (1, 2))), x[122_000:260_001, 1:])
    assert read(tp.open(tmp_path / "db.duckdb", "mixed/d")).tolist() == [2.5, 4.5]
    assert read(tp.open(tmp_path / "db.duckdb", "mixed/i")).dtype == np.int32
    for name, told in [("mixed", "no column of numbers"), ("mixed/s", "no column of numbers"), ("mixed/z", "no such")]:
        with pytest.raises(tp.FormatError, match=told):
            tp.open(tmp_path / "db.duckdb", name)


@pytest.mark.parametrize(
    "name",
    [
        *('t"; DROP TABLE kept; --', "x/y"),
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("select", "a'b", "naïve name", "1")),
    ],
)
def test_names_of_tables_and_columns_are_no_sql(tmp_path: Path, database: Any, name: str):
    database.execute("CREATE TABLE kept (x INTEGER)")
    database.execute(f"CREATE TABLE {quoted(name)} ({quoted(name)} INTEGER)")
    database.execute(f"INSERT INTO {quoted(name)} VALUES (7)")
    database.close()
    assert read(tp.open(tmp_path / "db.duckdb", name)).tolist() == [7]
    for hostile in (
        f"{name}; DROP TABLE kept",
        'kept"; DROP TABLE kept; --',
        "kept WHERE 1=1",
        "kept/x; DROP TABLE kept",
    ):
        with pytest.raises(tp.FormatError, match="holds no such tensor"):
            tp.open(tmp_path / "db.duckdb", hostile)
    assert tp.open(tmp_path / "db.duckdb", "kept").shape == (0,)
    save(tmp_path / "made.duckdb", {name: stored(np.arange(3.0))})
    assert read(tp.open(tmp_path / "made.duckdb", name)).tolist() == [0, 1, 2]


def test_a_database_reads_no_other_file(tmp_path: Path, database: Any):
    (tmp_path / "secret.csv").write_text("x\n1\n")
    database.execute(f"CREATE VIEW v AS SELECT * FROM read_csv('{tmp_path}/secret.csv')")
    database.close()
    with pytest.raises(tp.FormatError, match="holds no tensor"):
        tp.open(tmp_path / "db.duckdb", "v")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM v",
        "COPY t TO '{folder}/stolen.csv'",
        "ATTACH '{folder}/other.duckdb'",
        "SET enable_external_access = true",
        "SET threads = 8",
        "INSERT INTO t VALUES (1)",
    ],
)
def test_a_connection_does_nothing_but_read_its_own_tables(tmp_path: Path, database: Any, text: str):
    (tmp_path / "secret.csv").write_text("x\n1\n")
    database.execute(f"CREATE VIEW v AS SELECT * FROM read_csv('{tmp_path}/secret.csv')")
    database.execute("CREATE TABLE t (x INTEGER)")
    database.close()
    with connected(tmp_path / "db.duckdb") as opened, pytest.raises(duckdb.Error):
        opened.execute(text.format(folder=tmp_path)).fetchall()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["db.duckdb", "secret.csv"]


def test_rows_that_were_deleted_and_nulls_are_told(tmp_path: Path, database: Any):
    database.execute("CREATE TABLE t AS SELECT range::INTEGER AS x FROM range(10)")
    database.execute("CREATE TABLE n AS SELECT CASE WHEN range = 3 THEN NULL ELSE range END AS x FROM range(5)")
    database.execute("DELETE FROM t WHERE x = 4")
    database.close()
    with pytest.raises(tp.FormatError, match=r"rows of .* were deleted\n  9 of 10 are left"):
        tp.open(tmp_path / "db.duckdb", "t")
    with pytest.raises(tp.FormatError, match="has rows without a number\n  got 1 of them"):
        read(tp.open(tmp_path / "db.duckdb", "n"))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "x.duckdb").write_bytes(b"no database" * 1000)
    with pytest.raises(tp.FormatError, match="cannot be read by DuckDB"):
        tp.open(tmp_path / "x.duckdb", "t")
    with pytest.raises(tp.StorageError, match="no database lies at"):
        tp.open(tmp_path / "missing.duckdb")
    assert not (tmp_path / "missing.duckdb").exists()


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 1), (0, 1), (0,)])
def test_a_matrix_of_one_column_is_none_of_numbers(tmp_path: Path, shape: tuple[int, ...]):
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    save(tmp_path / "x.duckdb", {"x": stored(x)})
    found = tp.open(tmp_path / "x.duckdb", "x")
    assert found.shape == shape
    np.testing.assert_array_equal(read(found), x)


def test_a_database_that_may_not_be_read_is_not_told_as_damaged():
    with as_nobody() as folder:
        save(folder / "x.duckdb", {"x": stored(numbers((3,)))})
        (folder / "x.duckdb").chmod(0)
        with pytest.raises(
            tp.StorageError, match=r"cannot be opened by DuckDB\n.*Permission denied\n  See to the path"
        ):
            tp.open(folder / "x.duckdb")


@pytest.mark.parametrize("size", [0, 1, 4096, 8192, 12288, 16384])
def test_a_database_that_has_no_room_is_told(tmp_path: Path, size: int):
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(tp.StorageError, match=r"no room for|cannot"):
            save(tmp_path / "x.duckdb", {"x": stored(numbers((300,)))})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not [*tmp_path.iterdir()]


def test_a_pipe_beside_a_database_is_not_waited_for(tmp_path: Path):
    save(tmp_path / "x.duckdb", {"x": stored(numbers((3,)))})
    os.mkfifo(tmp_path / "x.duckdb.wal")
    with pytest.raises(tp.StorageError, match=r"x\.duckdb\.wal` is no file"):
        tp.open(tmp_path / "x.duckdb")
