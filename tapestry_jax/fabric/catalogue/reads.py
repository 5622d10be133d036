"""What is asked of a catalogue."""

from __future__ import annotations

from combinators.errors import FormatError, spelt
from tapestry_jax.fabric.catalogue import chain
from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.catalogue.rows import all_rows, check_total, rows
from tapestry_jax.fabric.catalogue.seals import (
    GARBAGE,
    OPERATIONS,
    PENDING,
    SNAPSHOT_TENSORS,
    SNAPSHOTS,
    TENSORS,
    VERSIONS,
    checked,
    is_sealed,
)
from tapestry_jax.fabric.tensors.records import (
    Block,
    Operation,
    Version,
    damaged,
    detail_from_row,
    kind_from_row,
    number_from_row,
    text_from_row,
)


def names(catalogue: Connection) -> tuple[str, ...]:
    """Of all tensors, sorted.

    Raises:
      FormatError: where one is lost, or is another than was written.
    """
    return tuple(text_from_row(name) for name, _ in all_rows(catalogue, TENSORS))


def current(catalogue: Connection, name: str) -> Version | None:
    """What a name stands for now; None where it stands for nothing.

    Raises:
      FormatError: where rows say what none of ours do.
    """
    if not _is_text(name):
        return None
    with catalogue.reading():
        found = rows(catalogue, TENSORS, name)
        return _found(catalogue, found[0][1], name) if found else None


def _is_text(name: object) -> bool:
    """Whether SQLite can be asked for it: it would take numbers for text, and has no halves of characters."""
    return isinstance(name, str) and name.isprintable() and name.encode("utf-8", "replace").decode() == name


def pending(catalogue: Connection, name: str) -> tuple[str, Version] | None:
    """What is being written under a name, and by whom."""
    with catalogue.reading():
        found = rows(catalogue, PENDING, name) if _is_text(name) else []
        return (text_from_row(found[0][1]), _found(catalogue, found[0][2], name)) if found else None


def filled(catalogue: Connection, name: str) -> str:
    """Which cells are written of what is being written under a name, as `storage/filled.py` has it."""
    found = rows(catalogue, PENDING, name)
    return str(found[0][3]) if found else "[]"


def version(catalogue: Connection, number: int) -> Version | None:
    """A version by its number; None where nobody remembers it."""
    found = rows(catalogue, VERSIONS, number)
    return Version(number, kind_from_row(*found[0][1:5])) if found else None


def token(catalogue: Connection, number: int) -> str:
    """What tells a version from all others, also from those that a copy of the fabric has given its number to."""
    found = rows(catalogue, VERSIONS, number)
    if not found:
        raise damaged("a version has no row", f"version {number}")
    return f"version {number} of {found[0][5]!r}"


def _found(catalogue: Connection, number: object, name: str) -> Version:
    found = version(catalogue, number) if isinstance(number, int) else None
    if found is None:
        raise damaged("a tensor has no version", f"{spelt(name)}: version {spelt(number, 40)}")
    return found


def blocks(catalogue: Connection, number: int, within: tuple[int, int] | None = None) -> dict[int, Block]:
    """The blocks of a version by position, all or those between two positions; one that is not there is zero."""
    return chain.find_all(catalogue, number, within)


def block(catalogue: Connection, number: int, position: int) -> Block | None:
    """One of them."""
    return chain.find(catalogue, number, position)


def files_if_whole(catalogue: Connection) -> frozenset[str] | None:
    """The files of all blocks; None where rows of the catalogue are lost, or not as they were written."""
    found: list[str | None] = []
    try:
        with catalogue.reading():
            check_live(catalogue)
            for (number,) in catalogue.ask("SELECT number FROM versions"):
                found += [block.file for block in chain.find_all(catalogue, number_from_row(number)).values()]
            ((count,),) = catalogue.ask("SELECT COUNT(*) FROM blocks NOT INDEXED")
    except FormatError:
        return None
    return frozenset(file for file in found if file is not None) if count == len(found) else None


def garbage(catalogue: Connection) -> list[str]:
    """The files that are to be removed. A name that was damaged may be that of another file: it is left where it is."""
    found = catalogue.ask(f"SELECT {GARBAGE.asked} FROM garbage")
    return [row[0] for row in found if is_sealed(GARBAGE, row)]


def check_live(catalogue: Connection) -> None:
    """That all versions that names, snapshots and sinks have are known: what is not known is forgotten.

    Raises:
      FormatError: where rows are lost, or name other versions than they did.
    """
    with catalogue.reading():
        for table in (TENSORS, SNAPSHOT_TENSORS, PENDING):
            check_total(catalogue, table)
            lost = catalogue.ask(f"SELECT version FROM {table.name} WHERE version NOT IN (SELECT number FROM versions)")
            if lost:
                raise damaged("a version has no row", f"version {spelt(lost[0][0], 40)}, of `{table.name}`")


def operation(catalogue: Connection, number: int) -> Operation | None:
    """An operation by its number; None where nobody remembers it."""
    question = "SELECT version FROM operation_inputs WHERE operation = ? ORDER BY position"
    with catalogue.reading():
        found = catalogue.ask(f"SELECT {OPERATIONS.asked} FROM operations WHERE number = ?", (number,))
        inputs = tuple(number_from_row(each) for (each,) in catalogue.ask(question, (number,)))
    if not found:
        return None
    *fields, sealed = found[0]
    # What it read belongs to it: one that is lost, or another, is seen here.
    _, kind, detail, graph, *_ = checked(OPERATIONS, (*fields, *inputs, sealed), (number,))
    return Operation(number, text_from_row(kind), detail_from_row(detail), graph and text_from_row(graph), inputs)


def graph_text(catalogue: Connection, key: str) -> str | None:
    """A stored graph by its key; None where no file could hold it."""
    found = catalogue.ask("SELECT text FROM graphs WHERE key = ?", (key,))
    return str(found[0][0]) if found else None


def snapshots(catalogue: Connection) -> tuple[str, ...]:
    """The names of snapshots, the oldest first.

    Raises:
      FormatError: where one is lost, or is another than was written.
    """
    found = all_rows(catalogue, SNAPSHOTS)
    return tuple(name for _, name in sorted((made, text_from_row(name)) for name, made, _ in found))


def snapshot(catalogue: Connection, name: str) -> dict[str, int] | None:
    """Names and versions of a snapshot; None where there is none.

    Raises:
      FormatError: where one of its names is lost, or is another than was written.
    """
    with catalogue.reading():
        if not _is_text(name) or not (found := rows(catalogue, SNAPSHOTS, name)):
            return None
        kept = {text_from_row(tensor): number_from_row(n) for _, tensor, n in rows(catalogue, SNAPSHOT_TENSORS, name)}
    if len(kept) != found[0][2]:
        told = f"{len(kept)} names, and {spelt(found[0][2], 40)} were written"
        raise damaged(f"the snapshot {spelt(name)} has other names", told)
    return kept
