"""Rows that say whether they are as they were written: each has a checksum of its own fields.

SQLite has no checksums: a bit that flips in a file gives another name, another number or no row, and no error. What is
changed is seen at the row. What is lost is seen where rows are counted: those that keep versions alive (`rows`), the
tensors of a snapshot (its row), and the blocks of a version (`chain`). Who edits a catalogue can sign it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from combinators.errors import spelt
from combinators.frozen import dataclass
from tapestry_jax.fabric.tensors.records import damaged, text_from_row

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A table whose rows are sealed.

    Attributes:
      name: of the table.
      columns: all but the seal; the key first.
      keys: how many of them are the key.
    """

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    @property
    def is_counted(self) -> bool:
        """Whether its rows are counted in `totals`: what they name is kept."""
        return self in COUNTED

    @property
    def asked(self) -> str:
        """The columns that `checked` takes, for a question."""
        return ", ".join((*self.columns, "seal"))

    def key(self, count: int) -> str:
        """Where the first columns of the key are what is given."""
        return " AND ".join(f"{column} = ?" for column in self.columns[:count]) or "TRUE"


TENSORS = Table("tensors", ("name", "version"))
SNAPSHOTS = Table("snapshots", ("name", "made", "tensors"))
SNAPSHOT_TENSORS = Table("snapshot_tensors", ("snapshot", "name", "version"), 2)
PENDING = Table("pending", ("name", "session", "version", "filled"))
VERSIONS = Table("versions", ("number", "dtype", "dims", "chunks", "layout", "made", "first"))
BLOCKS = Table("blocks", ("version", "position", "file", "checksum", "made", "following"), 2)
OPERATIONS = Table("operations", ("number", "kind", "detail", "graph"))
GARBAGE = Table("garbage", ("file",))
COUNTED: tuple[Table, ...] = TENSORS, SNAPSHOTS, SNAPSHOT_TENSORS, PENDING


def seal(table: Table, fields: Iterable[Any]) -> int:
    """The checksum of a row: 64 bits of BLAKE2b of its table and its fields, each with its type."""
    # ASCII, since what `repr` escapes depends on the release of Python.
    text = ascii((table.name, *fields))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def is_sealed(table: Table, row: Row) -> bool:
    """Whether a row, whose last field is its seal, is as it was written."""
    return seal(table, row[:-1]) == row[-1]


def checked(table: Table, row: Row, key: Row = ()) -> Row:
    """The fields of a row, whose last one is its seal, and which was asked for by the first columns of its key.

    Raises:
      FormatError: where it is not as it was written, or is another: an index may name the wrong one.
    """
    if not is_sealed(table, row) or row[: len(key)] != key:
        for field in row:
            if isinstance(field, str):
                text_from_row(field)
        raise damaged(f"a row of `{table.name}` is not as it was written", spelt(row[:-1], 200))
    return row[:-1]


def squares(table: Table, found: Iterable[Sequence[Any]]) -> int:
    """What tells the versions of rows from others: of two that change, the sum alone may stay."""
    if "version" not in table.columns:
        return 0
    at = table.columns.index("version")
    return sum(int(row[at]) ** 2 for row in found)
