"""The tables of a catalogue, and what makes a file one."""

from __future__ import annotations

import sqlite3

from combinators.errors import FormatError, message
from tapestry_jax.fabric.catalogue.older import OLDER, put_back, take_out
from tapestry_jax.fabric.catalogue.seals import COUNTED

VERSION = 3
"""Of the tables. Files of a newer one are refused."""
APPLICATION = 0x54706146
"""What SQLite keeps in the header of our files: `TpaF`."""
# Names are kept without numbers of rows: an index beside a table could name other rows than the table has.
TABLES = (
    "CREATE TABLE tensors (name TEXT PRIMARY KEY, version INTEGER NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE versions (number INTEGER PRIMARY KEY AUTOINCREMENT, dtype TEXT NOT NULL, dims TEXT NOT NULL, "
    "chunks TEXT NOT NULL, layout TEXT NOT NULL, made REAL NOT NULL, first INTEGER, seal INTEGER NOT NULL)",
    "CREATE TABLE blocks (version INTEGER NOT NULL, position INTEGER NOT NULL, file TEXT, checksum TEXT NOT NULL, "
    "made TEXT, following INTEGER, seal INTEGER NOT NULL, PRIMARY KEY (version, position)) WITHOUT ROWID",
    "CREATE INDEX blocks_of_file ON blocks (file)",
    "CREATE TABLE operations (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, detail TEXT NOT NULL, "
    "graph TEXT, seal INTEGER NOT NULL)",
    "CREATE TABLE operation_inputs (operation INTEGER NOT NULL, position INTEGER NOT NULL, version INTEGER NOT NULL, "
    "PRIMARY KEY (operation, position)) WITHOUT ROWID",
    "CREATE TABLE version_operations (version INTEGER NOT NULL, operation INTEGER NOT NULL, "
    "PRIMARY KEY (version, operation)) WITHOUT ROWID",
    "CREATE TABLE graphs (key TEXT PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE snapshots (name TEXT PRIMARY KEY, made REAL NOT NULL, tensors INTEGER NOT NULL, "
    "seal INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE snapshot_tensors (snapshot TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, "
    "seal INTEGER NOT NULL, PRIMARY KEY (snapshot, name)) WITHOUT ROWID",
    "CREATE TABLE pins (session TEXT NOT NULL, version INTEGER NOT NULL)",
    "CREATE TABLE pending (name TEXT PRIMARY KEY, session TEXT NOT NULL, version INTEGER NOT NULL, "
    "filled TEXT NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE garbage (file TEXT PRIMARY KEY, seal INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE totals (of TEXT PRIMARY KEY, rows INTEGER NOT NULL, squares INTEGER NOT NULL) WITHOUT ROWID",
)
_KNOWN: frozenset[str] = frozenset(map(str, TABLES))


def prepare(connection: sqlite3.Connection, where: str) -> None:
    """Make the tables of a new file, check those of an old one, and bring those of older versions up to this one.

    Raises:
      FormatError: for the file of another program, of a newer version, or with tables, triggers or views that are not
        ours: SQLite would run what a trigger says.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("BEGIN IMMEDIATE")
    try:
        known = {str(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        known -= {"CREATE TABLE sqlite_sequence(name,seq)"}
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        is_older = application == APPLICATION and OLDER.get(version) == known
        if is_older or (not known and not application and not version):
            kept = take_out(connection, version) if is_older else None
            for statement in TABLES:
                connection.execute(statement)
            if kept is not None:
                put_back(connection, kept)
            connection.executemany("INSERT OR IGNORE INTO totals VALUES (?, 0, 0)", [(each.name,) for each in COUNTED])
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        else:
            _check(known, application, version, where)
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has ended it by itself where the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check(known: set[str], application: int, version: int, where: str) -> None:
    if application != APPLICATION:
        remedy = "Name a folder of its own for the fabric."
        raise FormatError(message(f"{where} is a database, and no catalogue of a fabric", remedy=remedy))
    if version > VERSION:
        told = f"expected version {VERSION} at most, got {version}"
        remedy = "Open it with the release that wrote it, or a newer one."
        raise FormatError(message(f"{where} was written by a newer release", told, remedy=remedy))
    other = sorted(known ^ _KNOWN)
    if version != VERSION or other:
        remedy = "It was edited: put back a copy of the folder."
        told = f"version {version}; first that differs: {other[0]:.120}" if other else f"version {version}"
        raise FormatError(message(f"{where} has other tables than a catalogue has", told, remedy=remedy))
