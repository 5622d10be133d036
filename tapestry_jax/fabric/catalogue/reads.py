"""What is asked of a catalogue."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.errors import spelt
from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.tensors.records import (
    Block,
    Operation,
    Version,
    damaged,
    detail_from_row,
    kind_from_row,
    made_from_row,
    number_from_row,
    text_from_row,
)


def names(catalogue: Connection) -> tuple[str, ...]:
    """Of all tensors, sorted."""
    return tuple(text_from_row(name) for (name,) in catalogue.ask("SELECT name FROM tensors ORDER BY name"))


def current(catalogue: Connection, name: str) -> Version | None:
    """What a name stands for now; None where it stands for nothing.

    Raises:
      FormatError: where rows say what none of ours do.
    """
    if not _is_text(name):
        return None
    with catalogue.reading():
        rows = catalogue.ask("SELECT version FROM tensors WHERE name = ?", (name,))
        return _found(catalogue, rows[0][0], name) if rows else None


def _is_text(name: object) -> bool:
    """Whether SQLite can be asked for it: it would take numbers for text, and has no halves of characters."""
    return isinstance(name, str) and name.isprintable() and name.encode("utf-8", "replace").decode() == name


def pending(catalogue: Connection, name: str) -> tuple[str, Version] | None:
    """What is being written under a name, and by whom."""
    question = "SELECT session, version FROM pending WHERE name = ?"
    with catalogue.reading():
        rows = catalogue.ask(question, (name,)) if _is_text(name) else []
        return (text_from_row(rows[0][0]), _found(catalogue, rows[0][1], name)) if rows else None


def filled(catalogue: Connection, name: str) -> str:
    """Which cells are written of what is being written under a name, as `storage/filled.py` has it."""
    rows = catalogue.ask("SELECT filled FROM pending WHERE name = ?", (name,))
    return str(rows[0][0]) if rows else "[]"


def version(catalogue: Connection, number: int) -> Version | None:
    """A version by its number; None where nobody remembers it."""
    rows = catalogue.ask("SELECT dtype, dims, chunks, layout FROM versions WHERE number = ?", (number,))
    return Version(number, kind_from_row(*rows[0])) if rows else None


def token(catalogue: Connection, number: int) -> str:
    """What tells a version from all others, also from those that a copy of the fabric has given its number to."""
    ((made,),) = catalogue.ask("SELECT made FROM versions WHERE number = ?", (number,))
    return f"version {number} of {made!r}"


def _found(catalogue: Connection, number: object, name: str) -> Version:
    found = version(catalogue, number) if isinstance(number, int) else None
    if found is None:
        raise damaged("a tensor has no version", f"{spelt(name)}: version {spelt(number, 40)}")
    return found


def blocks(catalogue: Connection, number: int) -> dict[int, Block]:
    """The blocks of a version by position; one that is not there is zero."""
    rows = catalogue.ask("SELECT position, file, checksum, made FROM blocks WHERE version = ?", (number,))
    return {number_from_row(position): _block(*row) for position, *row in rows}


def block(catalogue: Connection, number: int, position: int) -> Block | None:
    """One of them."""
    question = "SELECT file, checksum, made FROM blocks WHERE version = ? AND position = ?"
    rows = catalogue.ask(question, (number, position))
    return _block(*rows[0]) if rows else None


def _block(file: object, checksum: object, made: object) -> Block:
    if not (file is None or isinstance(file, str)) or not isinstance(checksum, str):
        raise damaged("a block has no file that can be read", f"{spelt(file)}")
    return Block(file, checksum, made_from_row(made))


def operation(catalogue: Connection, number: int) -> Operation | None:
    """An operation by its number; None where nobody remembers it."""
    rows = catalogue.ask("SELECT kind, detail, graph FROM operations WHERE number = ?", (number,))
    if not rows:
        return None
    question = "SELECT version FROM operation_inputs WHERE operation = ? ORDER BY position"
    inputs = tuple(number_from_row(each) for (each,) in catalogue.ask(question, (number,)))
    kind, detail, graph = rows[0]
    return Operation(number, text_from_row(kind), detail_from_row(detail), graph and text_from_row(graph), inputs)


def graph_text(catalogue: Connection, key: str) -> str | None:
    """A stored graph by its key; None where no file could hold it."""
    rows = catalogue.ask("SELECT text FROM graphs WHERE key = ?", (key,))
    return str(rows[0][0]) if rows else None


def snapshots(catalogue: Connection) -> tuple[str, ...]:
    """The names of snapshots, the oldest first."""
    return tuple(text_from_row(name) for (name,) in catalogue.ask("SELECT name FROM snapshots ORDER BY made, name"))


def snapshot(catalogue: Connection, name: str) -> dict[str, int] | None:
    """Names and versions of a snapshot; None where there is none."""
    if not _is_text(name) or not catalogue.ask("SELECT 1 FROM snapshots WHERE name = ?", (name,)):
        return None
    question = "SELECT name, version FROM snapshot_tensors WHERE snapshot = ? ORDER BY name"
    return {text_from_row(tensor): number_from_row(number) for tensor, number in catalogue.ask(question, (name,))}


def are_live(catalogue: Connection, numbers: Sequence[int]) -> bool:
    """Whether all of these versions are still held by a name, a snapshot or somebody who reads."""
    question = (
        "SELECT EXISTS (SELECT 1 FROM tensors WHERE version = ?1) OR EXISTS (SELECT 1 FROM snapshot_tensors "
        "WHERE version = ?1) OR EXISTS (SELECT 1 FROM pins WHERE version = ?1)"
    )
    return all(catalogue.ask(question, (number,))[0][0] for number in numbers)
