"""Catalogues of older versions, brought up to this one when they are opened.

Version 1 did not say which cells were written of what is being written: that is given up. Version 2 had no seals, and
nothing told which blocks there are: what its rows say is taken as it is, where it hangs together.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from combinators.errors import FormatError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.fabric.catalogue.seals import (
    BLOCKS,
    COUNTED,
    GARBAGE,
    OPERATIONS,
    PENDING,
    SNAPSHOT_TENSORS,
    SNAPSHOTS,
    TENSORS,
    VERSIONS,
    Row,
    Table,
    seal,
    squares,
)
from tapestry_jax.fabric.tensors.boxes import count_of
from tapestry_jax.fabric.tensors.records import damaged, kind_from_row, number_from_row

_PENDING_1 = "CREATE TABLE pending (name TEXT PRIMARY KEY, session TEXT NOT NULL, version INTEGER NOT NULL)"
_PENDING_2 = (
    "CREATE TABLE pending (name TEXT PRIMARY KEY, session TEXT NOT NULL, version INTEGER NOT NULL, "
    "filled TEXT NOT NULL)"
)
_TABLES_2 = (
    "CREATE TABLE tensors (name TEXT PRIMARY KEY, version INTEGER NOT NULL)",
    "CREATE TABLE versions (number INTEGER PRIMARY KEY AUTOINCREMENT, dtype TEXT NOT NULL, dims TEXT NOT NULL, "
    "chunks TEXT NOT NULL, layout TEXT NOT NULL, made REAL NOT NULL)",
    "CREATE TABLE blocks (version INTEGER NOT NULL, position INTEGER NOT NULL, file TEXT, checksum TEXT NOT NULL, "
    "made TEXT, PRIMARY KEY (version, position)) WITHOUT ROWID",
    "CREATE INDEX blocks_of_file ON blocks (file)",
    "CREATE TABLE operations (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, detail TEXT NOT NULL, "
    "graph TEXT)",
    "CREATE TABLE operation_inputs (operation INTEGER NOT NULL, position INTEGER NOT NULL, version INTEGER NOT NULL, "
    "PRIMARY KEY (operation, position)) WITHOUT ROWID",
    "CREATE TABLE version_operations (version INTEGER NOT NULL, operation INTEGER NOT NULL, "
    "PRIMARY KEY (version, operation)) WITHOUT ROWID",
    "CREATE TABLE graphs (key TEXT PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE snapshots (name TEXT PRIMARY KEY, made REAL NOT NULL)",
    "CREATE TABLE snapshot_tensors (snapshot TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, "
    "PRIMARY KEY (snapshot, name)) WITHOUT ROWID",
    "CREATE TABLE pins (session TEXT NOT NULL, version INTEGER NOT NULL)",
    _PENDING_2,
    "CREATE TABLE garbage (file TEXT PRIMARY KEY)",
)
OLDER: Mapping[int, set[str]] = {1: {*_TABLES_2} - {_PENDING_2} | {_PENDING_1}, 2: {*_TABLES_2}}
"""What the tables of older versions are, by version."""
_UNCHANGED = ("operation_inputs", "version_operations", "graphs", "pins")


@dataclass(frozen=True)
class Kept:
    """What a catalogue held.

    Attributes:
      tables: the rows of its tables, by name.
      last: the largest numbers that were ever given to versions and operations: none is given again.
    """

    tables: Mapping[str, Sequence[Row]]
    last: Sequence[Row]


def take_out(connection: sqlite3.Connection, version: int) -> Kept:
    """All that a catalogue of an older version holds; its tables are gone then.

    Raises:
      FormatError: where its rows do not hang together: what they once said nobody can tell any more.
    """
    tables: dict[str, Sequence[Row]] = {
        table.name: connection.execute(f"SELECT {', '.join(_columns(table))} FROM {table.name}").fetchall()
        for table in (TENSORS, VERSIONS, BLOCKS, OPERATIONS, SNAPSHOTS, SNAPSHOT_TENSORS, GARBAGE)
    }
    tables |= {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in _UNCHANGED}
    asked = f"SELECT {', '.join(PENDING.columns)} FROM pending"
    tables["pending"] = connection.execute(asked).fetchall() if version > 1 else []
    last = connection.execute("SELECT seq, name FROM sqlite_sequence").fetchall()
    try:
        _check(tables)
    except FormatError as error:
        remedy = "Put back a copy of the folder, or open it with the release that wrote it."
        headline = f"a catalogue of version {version} does not hang together"
        raise FormatError(message(headline, *str(error).split("\n")[:2], remedy=remedy)) from error
    for name in tables:
        connection.execute(f"DROP TABLE {name}")
    return Kept(tables, last)


def put_back(connection: sqlite3.Connection, kept: Kept) -> None:
    """Write into new tables what a catalogue held, and seal it."""
    for table, rows in _complete(kept.tables).items():
        inputs = _inputs(kept.tables) if table is OPERATIONS else {}
        statement = f"INSERT INTO {table.name} ({table.asked}) VALUES ({'?, ' * len(table.columns)}?)"
        connection.executemany(statement, [(*row, seal(table, (*row, *inputs.get(row[0], ())))) for row in rows])
        if table in COUNTED:
            connection.execute("INSERT INTO totals VALUES (?, ?, ?)", (table.name, len(rows), squares(table, rows)))
    for name in _UNCHANGED:
        for row in kept.tables[name]:
            connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    connection.execute("DELETE FROM sqlite_sequence")
    connection.executemany("INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)", kept.last)


def _columns(table: Table) -> tuple[str, ...]:
    """Those that version 2 had."""
    return tuple(name for name in table.columns if name not in ("first", "following", "tensors"))


def _complete(tables: Mapping[str, Sequence[Row]]) -> dict[Table, list[Row]]:
    """Rows with what version 2 did not say: which block is the first, which follows, how many tensors there are."""
    blocks, first = list[Row](), dict[int, int]()
    ordered = sorted(tables["blocks"], key=lambda row: (row[0], row[1]))
    for row, following in zip(ordered, [*ordered[1:], None], strict=False):
        first.setdefault(row[0], row[1])
        blocks.append((*row, following[1] if following and following[0] == row[0] else None))
    kept = defaultdict[str, int](int)
    for snapshot, *_ in tables["snapshot_tensors"]:
        kept[snapshot] += 1
    whole = {table: list(tables[table.name]) for table in (TENSORS, SNAPSHOT_TENSORS, PENDING, OPERATIONS, GARBAGE)}
    versions = [(*row, first.get(row[0])) for row in tables["versions"]]
    snapshots = [(*row, kept[row[0]]) for row in tables["snapshots"]]
    return {**whole, VERSIONS: versions, BLOCKS: blocks, SNAPSHOTS: snapshots}


def _inputs(tables: Mapping[str, Sequence[Row]]) -> Mapping[Any, Sequence[int]]:
    """The versions that operations read, in order."""
    found = defaultdict[Any, list[int]](list)
    for operation, _, version in sorted(tables["operation_inputs"]):
        found[operation].append(version)
    return found


def _check(tables: Mapping[str, Sequence[Row]]) -> None:
    """That rows name versions that are there, and blocks that these have."""
    counts = dict[int, int]()
    for number, *kind, _ in tables["versions"]:
        known = kind_from_row(*kind)
        counts[number] = count_of(known.type.shape, known.chunks)
    for version, position, *_ in tables["blocks"]:
        if not 0 <= number_from_row(position) < counts.get(number_from_row(version), 0):
            raise damaged("a block belongs to no tensor", f"version {version}, position {position}")
    for table in (TENSORS, SNAPSHOT_TENSORS, PENDING):
        for row in tables[table.name]:
            if number_from_row(row[table.columns.index("version")]) not in counts:
                raise damaged("a tensor has no version", spelt(row))
    for row in tables["operation_inputs"]:
        tuple(map(number_from_row, row))
