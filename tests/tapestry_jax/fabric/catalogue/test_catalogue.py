"""Catalogues that were damaged, edited, or written by others: told in our words, and data only."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.catalogue.connection import FILE, Connection
from tapestry_jax.fabric.catalogue.schema import APPLICATION, VERSION, prepare
from tapestry_jax.fabric.catalogue.writes import name_version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", np.arange(6, dtype=np.float32).reshape(2, 3), names=("row", "col"))
        fabric.apply(tp.trace(lambda x: x + 1, tp.TensorType({"row": 2, "col": 3})), "x", out="y")
    return tmp_path / "f"


def edited(folder: Path, *statements: str) -> None:
    database = sqlite3.connect(folder / FILE, isolation_level=None)
    for statement in statements:
        database.execute(statement)
    database.close()


class Full(sqlite3.Connection):
    """A database whose disk is full when a transaction is committed: SQLite has undone it then."""

    def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
        if statement != "COMMIT":
            return super().execute(statement, *args)
        super().execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")


def test_a_disk_that_is_full_while_a_catalogue_is_made_is_told_as_such(tmp_path: Path):
    made = sqlite3.connect(tmp_path / FILE, isolation_level=None, factory=Full)
    with contextlib.closing(made), pytest.raises(sqlite3.OperationalError, match="full"):
        prepare(made, "here")
    with tp.Fabric(tmp_path) as fabric:
        assert list(fabric) == []


def test_catalogue_says_what_it_is(folder: Path):
    database = sqlite3.connect(folder / FILE)
    assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("PRAGMA user_version = 4", "was written by a newer release\n  expected version 3 at most, got 4\n"),
        ("PRAGMA application_id = 7", "is a database, and no catalogue of a fabric"),
        ("CREATE TABLE more (x)", "has other tables than a catalogue has"),
        ("DROP TABLE garbage", "has other tables than a catalogue has"),
        ("CREATE VIEW seen AS SELECT * FROM tensors", "has other tables than a catalogue has"),
        (
            "CREATE TRIGGER bad AFTER DELETE ON tensors BEGIN DELETE FROM versions; END",
            "has other tables than a catalogue has",
        ),
    ],
)
def test_other_catalogues_are_refused(folder: Path, statement: str, text: str):
    edited(folder, statement)
    with pytest.raises(tp.FormatError) as raised:
        tp.Fabric(folder)
    assert text in str(raised.value)


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at" * 4, b"SQLite format 3\0"])
def test_what_is_no_database_is_refused(folder: Path, content: bytes):
    for extra in folder.glob(f"{FILE}-*"):
        extra.unlink()
    (folder / FILE).write_bytes(content)
    with pytest.raises(tp.FormatError, match=r"catalogue.sqlite' (cannot be read|is lost)\n"):
        tp.Fabric(folder)


def test_truncated_catalogue_is_refused_or_all_is_there(folder: Path):
    whole, refused = (folder / FILE).read_bytes(), 0
    for size in (0, 1, 99, *range(600, len(whole), 2048 + 77)):
        for extra in folder.glob(f"{FILE}-*"):
            extra.unlink()
        (folder / FILE).write_bytes(whole[:size])
        try:
            with tp.Fabric(folder) as fabric:
                assert fabric.read("y").tolist() == [[1, 2, 3], [4, 5, 6]]
        except tp.FormatError:
            refused += 1
    assert refused > 20


EDITS: dict[str, str] = {
    "dtype": "UPDATE versions SET dtype = 'object'",
    "dtype of objects": "UPDATE versions SET dtype = 'O'",
    "size": """UPDATE versions SET dims = '[["row", -2], ["col", 3]]'""",
    "huge": """UPDATE versions SET dims = '[["row", 99999999999999999999], ["col", 3]]'""",
    "dims": "UPDATE versions SET dims = '{}'",
    "deep": f"UPDATE versions SET dims = '{'[' * 5000}'",
    "chunks": "UPDATE versions SET chunks = '[0, 3]'",
    "rank": "UPDATE versions SET chunks = '[2]'",
    "no version": "DELETE FROM versions",
    "a version that is text": "UPDATE tensors SET version = 'x'",
    "larger": """UPDATE versions SET dims = '[["row", 2000000], ["col", 3000000]]', chunks = '[2000000, 3000000]'""",
    "file": "UPDATE blocks SET file = '../../catalogue.sqlite'",
    "absolute": "UPDATE blocks SET file = '/etc/passwd'",
    "file that is a number": "UPDATE blocks SET file = 7",
    "checksum": "UPDATE blocks SET checksum = 'x'",
    "made": "UPDATE blocks SET made = '[[1]]'",
    "made without an end": "UPDATE blocks SET made = '[[Infinity, 0]]'",
    "made beyond numbers": "UPDATE blocks SET made = '[[9223372036854775808, 0]]'",
    "made by a half": "UPDATE blocks SET made = '[[1.5, 0]]'",
}


@pytest.mark.parametrize("table", ["tensors", "snapshots", "snapshot_tensors"])
def test_names_that_steer_a_terminal_are_told(folder: Path, table: str):
    with tp.Fabric(folder) as fabric:
        fabric.snapshot("kept")
    edited(folder, f"UPDATE {table} SET name = 'x' || char(27) || '[2J' WHERE name IN ('x', 'kept')")
    with tp.Fabric(folder) as fabric:
        asked = {"tensors": fabric.list, "snapshots": fabric.snapshots}.get(table, lambda: fabric.restore("kept"))
        with pytest.raises(tp.FormatError) as told:
            asked()
    assert str(told.value).startswith(
        "the catalogue of the fabric is damaged: a text cannot be read\n  got 'x\\x1b[2J'"
    )


@pytest.mark.parametrize("case", EDITS)
def test_edited_rows_are_told(folder: Path, case: str):
    edited(folder, EDITS[case])
    with tp.Fabric(folder) as fabric, pytest.raises(tp.TapestryError) as raised:
        fabric.read("y", {"row": slice(0, 1)})
    assert isinstance(raised.value, tp.FormatError | tp.FabricError)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE operations SET detail = 'x'",
        "UPDATE operations SET detail = '[]'",
        "UPDATE operations SET kind = 'shell'",
        "UPDATE operations SET graph = 'other'",
        "UPDATE graphs SET text = '{}'",
        "DELETE FROM operation_inputs",
        "UPDATE operation_inputs SET version = 99",
        "UPDATE blocks SET made = '[[99, 0]]' WHERE made IS NOT NULL",
        "UPDATE blocks SET made = '[[1, 5]]' WHERE made IS NOT NULL",
        """UPDATE operations SET kind = 'copy', detail = '{"from": 1}'""",
        """UPDATE operations SET kind = 'load', detail = '{"path": "http://example.org/x.npy"}'""",
        """UPDATE operations SET kind = 'load', detail = '{"path": "/etc/passwd"}'""",
        """UPDATE operations SET detail = '{"plan": "x"}'""",
    ],
)
def test_edited_lineage_is_told(folder: Path, statement: str):
    edited(folder, statement)
    with tp.Fabric(folder) as fabric:
        [(file,)] = fabric._opened.catalogue.ask("SELECT file FROM blocks ORDER BY version DESC LIMIT 1")
        (folder / "blocks" / file).unlink()
        with pytest.raises((tp.FormatError, tp.FabricError)):
            fabric.recover("y")


@pytest.mark.parametrize(
    ("table", "column"),
    [("blocks", "position"), ("operation_inputs", "version"), ("snapshot_tensors", "version"), ("tensors", "version")],
)
@pytest.mark.parametrize("value", ["x'ff00'", "'x'", "9e999"])
def test_numbers_that_are_none_are_told_and_nothing_is_forgotten(folder: Path, table: str, column: str, value: str):
    with tp.Fabric(folder) as fabric:
        fabric.snapshot("s")
    edited(folder, f"UPDATE {table} SET {column} = {value}")
    for asked in (lambda: fabric.describe("y"), lambda: fabric.restore("s"), lambda: fabric.delete("y")):
        with tp.Fabric(folder) as fabric, contextlib.suppress(tp.TapestryError):
            asked()
    with tp.Fabric(folder) as fabric:
        assert len(fabric._opened.catalogue.ask("SELECT * FROM versions")) == 2


def test_a_copy_that_says_no_boxes_is_told(folder: Path):
    whole = {"from": [[0, 2], [0, 3]], "to": [[0, 2], [0, 3]], "order": [0, 1]}
    with tp.Fabric(folder) as fabric:
        fabric.allocate("z", tp.TensorType({"row": 2, "col": 3}))
        fabric.copy("x", None, "z")
        [(file,)] = fabric._opened.catalogue.ask("SELECT file FROM blocks ORDER BY version DESC LIMIT 1")
    (folder / "blocks" / file).unlink()
    for damage in (
        {"order": [float("inf"), 1]},
        {"order": [5, 5]},
        {"order": [0]},
        {"from": [[0, 2]]},
        {"from": [[0, 2], [0, 1e99]]},
        {"to": [[0, 2**70], [0, 3]]},
    ):
        edited(folder, f"UPDATE operations SET detail = '{json.dumps(whole | damage)}' WHERE kind = 'copy'")
        with tp.Fabric(folder) as fabric, pytest.raises(tp.FormatError):
            fabric.recover("z")
    edited(folder, f"UPDATE operations SET detail = '{json.dumps(whole)}' WHERE kind = 'copy'")
    with tp.Fabric(folder) as fabric:
        fabric.recover("z")
        assert fabric.read("z").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_transaction_is_all_or_nothing():
    catalogue = Connection(None)

    def fails() -> None:
        with catalogue.writing():
            name_version(catalogue, "x", 1)
            with catalogue.writing():  # inside of the other
                name_version(catalogue, "y", 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert catalogue.ask("SELECT * FROM tensors") == []
    with catalogue.writing():
        name_version(catalogue, "x", 1)
    assert catalogue.ask("SELECT name, version FROM tensors") == [("x", 1)]
    catalogue.close()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (sqlite3.OperationalError("database or disk is full"), "cannot be written: the disk is full\n"),
        (sqlite3.OperationalError("database is locked"), "is in use\n  waited 120 s for another process that writes"),
        (sqlite3.OperationalError("unable to open database file"), "cannot be used\n  unable to open database file"),
    ],
)
def test_errors_of_sqlite_are_told_in_our_words(error: Exception, text: str):
    catalogue = Connection(None)

    def fails() -> None:
        with catalogue.writing():
            raise error

    with pytest.raises(tp.FabricError) as raised:
        fails()
    assert text in str(raised.value)
    catalogue.close()


def test_threads_take_turns(tmp_path: Path):
    from concurrent.futures import ThreadPoolExecutor  # here alone

    with tp.Fabric(tmp_path / "f") as fabric, ThreadPoolExecutor(4) as pool:
        fabric.allocate("x", tp.TensorType({"row": 8, "col": 4}, np.int32), chunks=(3, 4))

        def write(row: int) -> Callable[..., Any] | None:
            return fabric.write("x", np.full((1, 4), row, np.int32), {"row": slice(row, row + 1)})  # type: ignore[func-returns-value]

        list(pool.map(write, range(8)))
        assert fabric.read("x")[:, 0].tolist() == list(range(8))


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_a_pipe_beside_a_catalogue_is_not_waited_for(folder: Path, ending: str):
    (folder / f"{FILE}{ending}").unlink(missing_ok=True)
    os.mkfifo(folder / f"{FILE}{ending}")
    with pytest.raises(tp.FabricError, match=f"{FILE}{ending}` is no file\n  Look at what lies there"):
        tp.Fabric(folder)
    (folder / f"{FILE}{ending}").unlink()
    with tp.Fabric(folder) as fabric:
        assert fabric.read("y").sum() == 21
