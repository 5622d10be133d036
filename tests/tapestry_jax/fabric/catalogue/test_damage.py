"""Catalogues that were damaged: what is read is what was written, or an error says that it is not."""

from __future__ import annotations

import functools
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.catalogue import connection, reads
from tapestry_jax.fabric.catalogue.connection import FILE
from tapestry_jax.fabric.catalogue.seals import BLOCKS, PENDING, SNAPSHOT_TENSORS, SNAPSHOTS, TENSORS, VERSIONS, Table
from tests.tapestry_jax.fabric.catalogue.damage import NOW, SPARSE, attack, looked_at, make, used

KEPT_BY_ROWS = pytest.mark.parametrize(
    "table", [TENSORS, SNAPSHOTS, SNAPSHOT_TENSORS, PENDING, VERSIONS, BLOCKS], ids=lambda table: table.name
)


class Unsynced(sqlite3.Connection):
    """A database that does not wait for the disk: here the machine stays on."""

    def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
        return super().execute(statement.replace("synchronous = FULL", "synchronous = OFF"), *args)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.sqlite3, "connect", functools.partial(sqlite3.connect, factory=Unsynced))
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "f"
    make(folder)
    return folder


def told(statement: str) -> Callable[[Path], object]:
    """Damage by what SQLite is told, as it is done to a file."""

    def damage(file: Path) -> None:
        database = sqlite3.connect(file, isolation_level=None)
        try:
            database.execute(statement)
        finally:
            database.close()

    return damage


def rows_of(original: Path, table: Table) -> list[tuple[object, ...]]:
    database = sqlite3.connect(original / FILE)
    try:
        return database.execute(f"SELECT {', '.join(table.columns[: table.keys])} FROM {table.name}").fetchall()
    finally:
        database.close()


def where(table: Table, key: tuple[object, ...]) -> str:
    return " AND ".join(f"{column} = {value!r}" for column, value in zip(table.columns, key, strict=False))


def test_what_is_whole_is_right(original: Path, tmp_path: Path):
    seen = attack(original, tmp_path / "f", lambda file: None)
    assert seen["told"] == 0 and seen["right"] > 25


@pytest.mark.parametrize(
    "table", [TENSORS, SNAPSHOTS, SNAPSHOT_TENSORS, PENDING, VERSIONS, BLOCKS], ids=lambda t: t.name
)
def test_rows_that_are_lost_are_told(original: Path, tmp_path: Path, table: Table):
    keys = rows_of(original, table)
    for key in random.Random(0).sample(keys, min(len(keys), 3)):
        statement = f"DELETE FROM {table.name} WHERE {where(table, key)}"
        assert attack(original, tmp_path / "f", told(statement))["told"], statement


@pytest.mark.parametrize(
    "table", [TENSORS, SNAPSHOTS, SNAPSHOT_TENSORS, PENDING, VERSIONS, BLOCKS], ids=lambda t: t.name
)
def test_rows_that_are_changed_are_told(original: Path, tmp_path: Path, table: Table):
    keys, draw = rows_of(original, table), random.Random(1)
    for column in table.columns:
        one, other = draw.sample(keys * 2, 2)
        value = f"(SELECT {column} FROM {table.name} WHERE {where(table, other)})"
        for to in (value, "cast(x'6bff' AS TEXT)"):
            statement = f"UPDATE OR IGNORE {table.name} SET {column} = {to} WHERE {where(table, one)}"
            try:
                attack(original, tmp_path / "f", told(statement))
            except sqlite3.IntegrityError:
                continue  # a number of a row that is none


def test_a_block_that_lost_its_row_is_no_zero(original: Path, tmp_path: Path):
    """Of a tensor with few blocks one is read alone, beside zeros that nobody wrote, and with all."""
    make(tmp_path / "f")
    told("UPDATE blocks SET position = 30 WHERE position = 38")(tmp_path / "f" / FILE)
    with tp.Fabric(tmp_path / "f") as fabric:
        for box in (slice(76, 78), slice(77, 78), slice(60, 62), slice(50, 90), None):
            with pytest.raises(tp.FormatError, match="the catalogue of the fabric is damaged"):
                fabric.read("sparse", None if box is None else {"row": box})
        assert fabric.read("sparse", {"row": slice(0, 8)}).tolist() == SPARSE[:8].tolist()
        assert fabric.read("sparse", {"row": slice(198, 200)}).tolist() == SPARSE[198:].tolist()
        assert (fabric.read("x") == NOW["x"]).all()


def test_bits_that_flip_are_told(original: Path, tmp_path: Path):
    whole, draw = (original / FILE).read_bytes(), random.Random(2)
    stored = [at for at, byte in enumerate(whole) if byte]

    def flip(file: Path) -> None:
        data = bytearray(whole)
        for at in draw.sample(stored, draw.choice((1, 2, 3))):
            data[at] ^= 1 << draw.randrange(8)
        file.write_bytes(data)

    seen = sum((attack(original, tmp_path / "f", flip) for _ in range(12)), start=looked_at(original))
    assert seen["told"] > 10 and seen["right"] > 100


def test_pages_in_each_others_place_are_told(original: Path, tmp_path: Path):
    whole, draw = (original / FILE).read_bytes(), random.Random(3)
    pages = [whole[start : start + 4096] for start in range(0, len(whole), 4096)]

    def swap(file: Path) -> None:
        one, other = draw.sample(range(1, len(pages)), 2)
        changed = list(pages)
        changed[one], changed[other] = (pages[other], pages[one]) if draw.random() < 0.5 else (pages[other],) * 2
        file.write_bytes(b"".join(changed))

    seen = sum((attack(original, tmp_path / "f", swap) for _ in range(8)), start=looked_at(original))
    assert seen["told"] > 10


def test_garbage_whose_name_was_damaged_is_left_where_it_is(tmp_path: Path):
    make(tmp_path / "f")
    told("INSERT INTO garbage SELECT file, 7 FROM blocks")(tmp_path / "f" / FILE)
    assert looked_at(tmp_path / "f")["told"] == 0


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM blocks WHERE position = 38",
        "INSERT INTO blocks SELECT 99, position, file || '9', checksum, made, NULL, 0 FROM blocks LIMIT 1",
    ],
)
def test_what_a_dead_session_left_stays_where_rows_are_lost(tmp_path: Path, statement: str):
    """Nobody knows then which of its files a row had."""
    make(tmp_path / "f")
    whole = (tmp_path / "f" / FILE).read_bytes()
    [folder] = {file.parent for file in (tmp_path / "f" / "blocks").glob("*/[0-9]*")}
    (folder / "lock").touch()
    (folder / "999").touch()
    told(statement)(tmp_path / "f" / FILE)
    looked_at(tmp_path / "f")
    assert (folder / "999").exists()
    (tmp_path / "f" / FILE).write_bytes(whole)
    assert looked_at(tmp_path / "f")["told"] == 0
    assert not (folder / "999").exists()


def test_what_is_whole_is_read_where_a_name_is_lost(tmp_path: Path):
    """Its blocks belong to nobody then: who lets go of another tensor does not end in that, and takes nothing along."""
    make(tmp_path / "f")
    whole = (tmp_path / "f" / FILE).read_bytes()
    told("DELETE FROM tensors WHERE name = 'more/z'")(tmp_path / "f" / FILE)
    told("DELETE FROM snapshot_tensors WHERE name = 'more/z'")(tmp_path / "f" / FILE)
    with tp.Fabric(tmp_path / "f") as fabric:
        assert np.asarray(fabric.array("y")).tolist() == NOW["y"].tolist()
        with pytest.raises(
            tp.FormatError, match="rows of `tensors` are lost, or are others\n  got 3, and 4 were written"
        ):
            fabric.delete("x")
        assert (fabric.read("x") == NOW["x"]).all()
    (tmp_path / "f" / FILE).write_bytes(whole)
    assert looked_at(tmp_path / "f")["told"] == 0


def test_what_an_operation_read_belongs_to_it(tmp_path: Path):
    make(tmp_path / "f")
    told("UPDATE operation_inputs SET version = version + 1")(tmp_path / "f" / FILE)
    with tp.Fabric(tmp_path / "f") as fabric, pytest.raises(tp.FormatError, match="a row of `operations` is not as"):
        fabric.describe("y")


@pytest.mark.parametrize(
    ("one", "other"),
    [(b"garbage (file", b"garb\xe4ge (file"), (b"tablegarbage", b"table\xe7arbage"), (b"more/z", b"more\xe4z")],
)
def test_what_is_no_text_is_told(tmp_path: Path, one: bytes, other: bytes):
    make(tmp_path / "f")
    file = tmp_path / "f" / FILE
    file.write_bytes(file.read_bytes().replace(one, other))
    with pytest.raises(tp.FormatError), tp.Fabric(tmp_path / "f") as fabric:
        fabric.list()


def test_a_tensor_that_was_damaged_is_replaced(tmp_path: Path):
    """Who only reads is not in its way, and what takes its place is whole."""
    make(tmp_path / "f")
    told("UPDATE blocks SET checksum = 'x' WHERE version = (SELECT version FROM tensors WHERE name = 'x')")(
        tmp_path / "f" / FILE
    )
    with tp.Fabric(tmp_path / "f") as fabric:
        with pytest.raises(tp.FormatError, match="a row of `blocks` is not as it was written"):
            fabric.read("x")
        fabric.load("x", NOW["x"], names=("row", "col"), overwrite=True)
    assert looked_at(tmp_path / "f")["told"] == 0
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.forget("kept")
        assert (fabric.read("x") == NOW["x"]).all()


def test_few_blocks_of_many_are_asked_for(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.allocate("x", tp.TensorType({"row": 10**12}, np.int32), chunks=(2,))
        fabric.write("x", np.arange(200, dtype=np.int32), {"row": slice(10**9, 10**9 + 200)})
        version = fabric.describe("x").version
        catalogue = fabric._opened.catalogue
        found = reads.blocks(catalogue, version, (5 * 10**8 + 10, 5 * 10**8 + 12))
        assert [*found] == [5 * 10**8 + 10, 5 * 10**8 + 11, 5 * 10**8 + 12]
        assert reads.blocks(catalogue, version, (0, 10)) == {} == reads.blocks(catalogue, version, (10**10, 10**11))
        assert reads.block(catalogue, version, 0) is None and reads.block(catalogue, version, 10**11) is None


def test_what_is_gone_on_with_is_told_where_it_is_damaged(tmp_path: Path):
    make(tmp_path / "f")
    told("UPDATE pending SET filled = replace(filled, '[4, 6]', '[2, 6]')")(tmp_path / "f" / FILE)
    assert used(tmp_path / "f")["told"]
