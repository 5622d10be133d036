"""What is written into a catalogue; each inside of a transaction of its caller."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tapestry_jax.fabric.catalogue import chain
from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.catalogue.rows import all_rows, drop, put, put_all, rows
from tapestry_jax.fabric.catalogue.seals import (
    BLOCKS,
    OPERATIONS,
    PENDING,
    SNAPSHOT_TENSORS,
    SNAPSHOTS,
    TENSORS,
    VERSIONS,
    checked,
    seal,
)
from tapestry_jax.fabric.tensors.records import Block, Kind, Made, kind_to_row


def add_version(catalogue: Connection, kind: Kind, blocks: Mapping[int, Block]) -> int:
    """A new version and its blocks; its number."""
    fields = (*kind_to_row(kind), time.time(), min(blocks, default=None))
    statement = "INSERT INTO versions (dtype, dims, chunks, layout, made, first, seal) VALUES (?, ?, ?, ?, ?, ?, 0)"
    number = catalogue.tell(statement, fields)
    catalogue.tell("UPDATE versions SET seal = ? WHERE number = ?", (seal(VERSIONS, (number, *fields)), number))
    chain.link(catalogue, number, blocks)
    _note_operations(catalogue, number, [block.made for block in blocks.values()])
    return number


def put_blocks(catalogue: Connection, number: int, blocks: Mapping[int, Block], known: Mapping[int, Block]) -> None:
    """Blocks of a version, in the place of those that were there: `known`, as `reads.blocks` has just given them."""
    chain.link(catalogue, number, blocks, known)
    _note_operations(catalogue, number, [block.made for block in blocks.values()])


def set_made(catalogue: Connection, number: int, made: Made) -> None:
    """Say how all blocks of a version came to be."""
    known = chain.find_all(catalogue, number)
    chain.link(catalogue, number, {at: replace(block, made=made) for at, block in known.items()}, known)
    _note_operations(catalogue, number, [made])


def _note_operations(catalogue: Connection, number: int, made: Iterable[Made]) -> None:
    operations = {operation for each in made for operation, _ in each or ()}
    statement = "INSERT OR IGNORE INTO version_operations (version, operation) VALUES (?, ?)"
    catalogue.tell_each(statement, [(number, operation) for operation in operations])


def name_version(catalogue: Connection, name: str, number: int) -> None:
    """Let a name stand for a version."""
    put(catalogue, TENSORS, name, number)


def drop_name(catalogue: Connection, name: str) -> None:
    """Let a name stand for nothing."""
    drop(catalogue, TENSORS, name)


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
    fields = kind, json.dumps(detail), None if graph is None else graph[0]
    number = catalogue.tell("INSERT INTO operations (kind, detail, graph, seal) VALUES (?, ?, ?, 0)", fields)
    sealed = seal(OPERATIONS, (number, *fields, *inputs))
    catalogue.tell("UPDATE operations SET seal = ? WHERE number = ?", (sealed, number))
    statement = "INSERT INTO operation_inputs (operation, position, version) VALUES (?, ?, ?)"
    catalogue.tell_each(statement, [(number, at, version) for at, version in enumerate(inputs)])
    if graph is not None and graph[1] is not None:
        catalogue.tell("INSERT OR IGNORE INTO graphs (key, text) VALUES (?, ?)", graph)
    return number


def replace_file(catalogue: Connection, old: Block, new: Block) -> None:
    """A block that was computed again, for every version that has it.

    Only one with the same bytes: a version never changes.
    """
    question = f"SELECT {BLOCKS.asked} FROM blocks WHERE file = ? AND checksum = ?"
    found = [checked(BLOCKS, row) for row in catalogue.ask(question, (old.file, old.checksum))]
    chain.replace_file(catalogue, found, new.file)


def replace_dropped(catalogue: Connection, number: int, position: int, new: Block) -> None:
    """The file of a block that had none any more."""
    chain.replace_file(catalogue, rows(catalogue, BLOCKS, number, position), new.file)


def add_snapshot(catalogue: Connection, name: str) -> None:
    """Keep all that names stand for now."""
    kept = all_rows(catalogue, TENSORS)
    put(catalogue, SNAPSHOTS, name, time.time(), len(kept))
    put_all(catalogue, SNAPSHOT_TENSORS, [(name, *each) for each in kept])


def drop_snapshot(catalogue: Connection, name: str) -> None:
    """Keep it no longer."""
    drop(catalogue, SNAPSHOTS, name)
    drop(catalogue, SNAPSHOT_TENSORS, name)


def pin(catalogue: Connection, session: str, numbers: Sequence[int]) -> None:
    """Keep versions while a session reads them."""
    catalogue.tell_each("INSERT INTO pins (session, version) VALUES (?, ?)", [(session, each) for each in numbers])


def unpin(catalogue: Connection, session: str, numbers: Sequence[int]) -> None:
    """Let them go: one pin of each, since others of the session may read them too."""
    statement = "DELETE FROM pins WHERE rowid = (SELECT rowid FROM pins WHERE session = ? AND version = ? LIMIT 1)"
    catalogue.tell_each(statement, [(session, each) for each in numbers])


def set_pending(catalogue: Connection, name: str, session: str, number: int, filled: str) -> None:
    """Say what is being written under a name, and which cells of it are written."""
    put(catalogue, PENDING, name, session, number, filled)


def drop_pending(catalogue: Connection, name: str) -> None:
    """It is written, or given up."""
    drop(catalogue, PENDING, name)


def drop_session(catalogue: Connection, session: str) -> None:
    """Nobody of a session reads any more. What it was writing stays, to be gone on with."""
    catalogue.tell("DELETE FROM pins WHERE session = ?", (session,))
