"""Catalogues of older versions are opened: what they hold is there, and sealed from then on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.catalogue.connection import FILE
from tapestry_jax.fabric.catalogue.older import OLDER
from tapestry_jax.fabric.catalogue.schema import VERSION

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", X, names=("row", "col"))
        fabric.apply(tp.trace(lambda x: x + 1, tp.TensorType({"row": 2, "col": 3})), "x", out="y")
        fabric.allocate("sparse", tp.TensorType({"row": 9}, np.int32), chunks=(2,))
        for row in (2, 7):
            fabric.write("sparse", np.full(1, row, np.int32), {"row": slice(row, row + 1)})
        fabric.snapshot("kept")
        sink = fabric.create("z").make((4,), np.int32)
        sink.write(((0, 2),), np.arange(2, dtype=np.int32)).result()
        sink.flush()
        sink.close()
    return tmp_path / "f"


def make_older(folder: Path, version: int) -> None:
    """Bring a catalogue to what an older version wrote: its tables, without what came later."""
    database = sqlite3.connect(folder / FILE, isolation_level=None)
    numbers = database.execute("SELECT * FROM sqlite_sequence").fetchall()
    tables = sorted(OLDER[version], key=lambda statement: "INDEX" in statement)
    content = {}
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        content[name] = database.execute(f"SELECT * FROM {name}").fetchall()
        if not name.startswith("sqlite"):
            database.execute(f"DROP TABLE {name}")
    for statement in tables:
        database.execute(statement)
        if "CREATE TABLE" in statement:
            name = statement.split()[2]
            columns = len(database.execute(f"PRAGMA table_info({name})").fetchall())
            rows = [row[:columns] for row in content[name]]
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * columns)})", rows)
    database.execute("DELETE FROM sqlite_sequence")
    database.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", numbers)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()


def edited(folder: Path, statement: str) -> None:
    database = sqlite3.connect(folder / FILE, isolation_level=None)
    database.execute(statement)
    database.close()


@pytest.mark.parametrize("version", OLDER)
def test_older_catalogues_are_opened(folder: Path, version: int):
    make_older(folder, version)
    for _ in range(2):
        with tp.Fabric(folder) as fabric:
            assert fabric.list() == ("sparse", "x", "y") and fabric.snapshots() == ("kept",)
            assert (fabric.read("x") == X).all() and (fabric.read("y") == X + 1).all()
            assert fabric.read("sparse").tolist() == [0, 0, 2, 0, 0, 0, 0, 7, 0]
            assert fabric.check("sparse") == ()
    with tp.Fabric(folder) as fabric:
        fabric.write("x", X + 5)
        fabric.restore("kept")
        assert (fabric.read("x") == X).all()
        fabric.forget("kept")
        for file in (folder / "blocks").glob("*/[0-9]*"):
            file.write_bytes(b"")
        with pytest.raises(tp.FabricError, match="written from memory"):
            fabric.recover("y")
        again = fabric.create("z").again
        if version == 1:
            with pytest.raises(tp.FabricError, match="nothing is left"):
                again((4,), np.int32)
        else:
            sink = again((4,), np.int32)
            assert sink.filled.boxes() == [((0, 2),)]
            sink.close()


def test_numbers_of_versions_are_not_given_again(folder: Path):
    with tp.Fabric(folder) as fabric:
        fabric.load("gone", X)
        number = fabric.describe("gone").version
        fabric.delete("gone")
    make_older(folder, 2)
    with tp.Fabric(folder) as fabric:
        fabric.load("more", X)
        assert fabric.describe("more").version == number + 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE blocks SET version = 99 WHERE version = 1",
        "UPDATE blocks SET version = 'x' WHERE version = 1",
        "UPDATE blocks SET position = 7 WHERE version = 1",
        "UPDATE blocks SET position = -1 WHERE version = 1",
        "UPDATE blocks SET position = x'00ff' WHERE version = 1",
        "UPDATE tensors SET version = 99 WHERE name = 'x'",
        "UPDATE snapshot_tensors SET version = 'x' WHERE name = 'x'",
        "UPDATE versions SET dims = '{}'",
        "UPDATE tensors SET name = cast(x'ff' AS TEXT) WHERE name = 'x'",
    ],
)
def test_older_catalogues_that_do_not_hang_together_are_refused_and_left_as_they_are(folder: Path, statement: str):
    make_older(folder, 2)
    edited(folder, statement)
    for _ in range(2):
        with pytest.raises(tp.FormatError):
            tp.Fabric(folder)
    database = sqlite3.connect(folder / FILE)
    assert database.execute("PRAGMA user_version").fetchone() == (2,)
    database.close()


def test_older_catalogues_with_other_tables_are_refused(folder: Path):
    make_older(folder, 1)
    edited(folder, "CREATE TABLE more (x)")
    with pytest.raises(tp.FormatError, match="has other tables than a catalogue has"):
        tp.Fabric(folder)
    assert max(OLDER) < VERSION
