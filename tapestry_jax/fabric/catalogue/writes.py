"""What is written into a catalogue; each inside of a transaction of its caller."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.tensors.records import Block, Kind, Made, kind_to_row, made_to_row


def add_version(catalogue: Connection, kind: Kind, blocks: Mapping[int, Block]) -> int:
    """A new version and its blocks; its number."""
    statement = "INSERT INTO versions (dtype, dims, chunks, layout, made) VALUES (?, ?, ?, ?, ?)"
    number = catalogue.tell(statement, (*kind_to_row(kind), time.time()))
    put_blocks(catalogue, number, blocks)
    return number


def put_blocks(catalogue: Connection, number: int, blocks: Mapping[int, Block]) -> None:
    """Blocks of a version, in the place of those that were there."""
    rows = [(number, at, b.file, b.checksum, made_to_row(b.made)) for at, b in blocks.items()]
    statement = "INSERT OR REPLACE INTO blocks (version, position, file, checksum, made) VALUES (?, ?, ?, ?, ?)"
    catalogue.tell_each(statement, rows)
    operations = {operation for block in blocks.values() for operation, _ in block.made or ()}
    statement = "INSERT OR IGNORE INTO version_operations (version, operation) VALUES (?, ?)"
    catalogue.tell_each(statement, [(number, operation) for operation in operations])


def set_made(catalogue: Connection, number: int, made: Made) -> None:
    """Say how all blocks of a version came to be."""
    catalogue.tell("UPDATE blocks SET made = ? WHERE version = ?", (made_to_row(made), number))
    statement = "INSERT OR IGNORE INTO version_operations (version, operation) VALUES (?, ?)"
    catalogue.tell_each(statement, [(number, operation) for operation, _ in made or ()])


def name_version(catalogue: Connection, name: str, number: int) -> None:
    """Let a name stand for a version."""
    catalogue.tell("INSERT OR REPLACE INTO tensors (name, version) VALUES (?, ?)", (name, number))


def drop_name(catalogue: Connection, name: str) -> None:
    """Let a name stand for nothing."""
    catalogue.tell("DELETE FROM tensors WHERE name = ?", (name,))


def add_operation(
    catalogue: Connection,
    kind: str,
    detail: Mapping[str, Any],
    inputs: Sequence[int],
    graph: tuple[str, str | None] | None,
) -> int:
    """Remember what made blocks; its number.

    Args:
      catalogue: where.
      kind: `apply`, `load` or `copy`.
      detail: what JSON holds of it.
      inputs: the versions that it read.
      graph: key and text of its graph; the text is None where no file holds it.
    """
    statement = "INSERT INTO operations (kind, detail, graph) VALUES (?, ?, ?)"
    number = catalogue.tell(statement, (kind, json.dumps(detail), None if graph is None else graph[0]))
    statement = "INSERT INTO operation_inputs (operation, position, version) VALUES (?, ?, ?)"
    catalogue.tell_each(statement, [(number, at, version) for at, version in enumerate(inputs)])
    if graph is not None and graph[1] is not None:
        catalogue.tell("INSERT OR IGNORE INTO graphs (key, text) VALUES (?, ?)", graph)
    return number


def replace_file(catalogue: Connection, old: Block, new: Block) -> None:
    """A block that was computed again, for every version that has it.

    Only one with the same bytes: a version never changes.
    """
    statement = "UPDATE blocks SET file = ? WHERE file = ? AND checksum = ?"
    catalogue.tell(statement, (new.file, old.file, old.checksum))


def add_snapshot(catalogue: Connection, name: str) -> None:
    """Keep all that names stand for now."""
    catalogue.tell("INSERT INTO snapshots (name, made) VALUES (?, ?)", (name, time.time()))
    catalogue.tell(
        "INSERT INTO snapshot_tensors (snapshot, name, version) SELECT ?, name, version FROM tensors", (name,)
    )


def drop_snapshot(catalogue: Connection, name: str) -> None:
    """Keep it no longer."""
    catalogue.tell("DELETE FROM snapshots WHERE name = ?", (name,))
    catalogue.tell("DELETE FROM snapshot_tensors WHERE snapshot = ?", (name,))


def pin(catalogue: Connection, session: str, numbers: Sequence[int]) -> None:
    """Keep versions while a session reads them."""
    catalogue.tell_each("INSERT INTO pins (session, version) VALUES (?, ?)", [(session, each) for each in numbers])


def unpin(catalogue: Connection, session: str, numbers: Sequence[int]) -> None:
    """Let them go: one pin of each, since others of the session may read them too."""
    statement = "DELETE FROM pins WHERE rowid = (SELECT rowid FROM pins WHERE session = ? AND version = ? LIMIT 1)"
    catalogue.tell_each(statement, [(session, each) for each in numbers])


def set_pending(catalogue: Connection, name: str, session: str, number: int, filled: str) -> None:
    """Say what is being written under a name, and which cells of it are written."""
    statement = "INSERT OR REPLACE INTO pending (name, session, version, filled) VALUES (?, ?, ?, ?)"
    catalogue.tell(statement, (name, session, number, filled))


def drop_pending(catalogue: Connection, name: str) -> None:
    """It is written, or given up."""
    catalogue.tell("DELETE FROM pending WHERE name = ?", (name,))


def drop_session(catalogue: Connection, session: str) -> None:
    """Nobody of a session reads any more. What it was writing stays, to be gone on with."""
    catalogue.tell("DELETE FROM pins WHERE session = ?", (session,))
