"""The blocks of a version, as a chain: its row says which is the first, and each block which one follows.

A block without a row is zero, so a row that was lost would be zeros that nobody wrote. Here the row before it says that
it is there, and what is asked for it is one row: the block, or the last one before it. So what is read need not be
counted, and blocks that are added change one row more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from combinators.errors import spelt
from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.catalogue.rows import put, put_all, rows
from tapestry_jax.fabric.catalogue.seals import BLOCKS, VERSIONS, Row, checked, is_sealed
from tapestry_jax.fabric.tensors.records import Block, damaged, made_from_row, made_to_row

_ASKED = f"SELECT {BLOCKS.asked} FROM blocks WHERE version = ?"
_LAST = f"{_ASKED} AND position <= ? ORDER BY position DESC LIMIT 1"


def find(catalogue: Connection, number: int, position: int) -> Block | None:
    """One block of a version; None where it was never written.

    Raises:
      FormatError: where its row is lost, or is not as it was written.
    """
    with catalogue.reading():
        row = _last(catalogue, number, position)
        following = first(catalogue, number) if row is None else row[5]
    if row is not None and row[1] == position:
        return _block(row)
    if following is not None and following <= position:
        raise _lost(number, following)
    return None


def find_all(catalogue: Connection, number: int, within: tuple[int, int] | None = None) -> dict[int, Block]:
    """The blocks of a version by position, in order: those from one position to another, inclusive; None takes all.

    Raises:
      FormatError: where a row of them is lost, or is not as it was written.
    """
    with catalogue.reading():
        before = _last(catalogue, number, within[0] - 1) if within else None
        expected = first(catalogue, number) if before is None else before[5]
        bounds = " AND position BETWEEN ? AND ?" if within else ""
        found = catalogue.ask(f"{_ASKED}{bounds} ORDER BY position", (number, *(within or ())))
    blocks: dict[int, Block] = {}
    for row in found:
        _, position, *_, following = checked(BLOCKS, row, (number,))
        if position != expected:
            raise _lost(number, expected)
        blocks[position] = _block(row)
        expected = following
    if expected is not None and (within is None or expected <= within[1]):
        raise _lost(number, expected)
    return blocks


def first(catalogue: Connection, number: int) -> int | None:
    """The position of the first block of a version; None where it has none.

    Raises:
      FormatError: where there is no such version.
    """
    found = rows(catalogue, VERSIONS, number)
    if not found:
        raise damaged("a version has no row", f"version {number}")
    return found[0][6]


def link(
    catalogue: Connection, number: int, fresh: Mapping[int, Block], known: Mapping[int, Block] | None = None
) -> None:
    """Write blocks of a version in the place of those that were there, inside of a transaction.

    Args:
      catalogue: where.
      number: of the version.
      fresh: the blocks.
      known: all that it has, as `find_all` has just given them; None for a new version, which says its first one.
    """
    before, merged = _following(sorted(known or ())), {**(known or {}), **fresh}
    after = _following(sorted(merged))
    changed = [at for at in after if at in fresh or before[at] != after[at]]
    replaced = [(number, at) for at in changed if at in before]
    put_all(catalogue, BLOCKS, [_row(number, at, merged[at], after[at]) for at in changed], replaced)
    begins = min(merged, default=None)
    if known is not None and begins != min(known, default=None):
        [version] = rows(catalogue, VERSIONS, number)
        put(catalogue, VERSIONS, *version[:6], begins)


def replace_file(catalogue: Connection, found: Sequence[Row], file: str | None) -> None:
    """Let the rows of blocks name another file with the same bytes, or none, inside of a transaction."""
    put_all(catalogue, BLOCKS, [(*row[:2], file, *row[3:]) for row in found], found)


def sound_rows(catalogue: Connection, number: int) -> list[Row]:
    """The rows of a version that nobody needs as a whole any more: those that are as they were written."""
    return [row[:-1] for row in catalogue.ask(_ASKED, (number,)) if is_sealed(BLOCKS, row)]


def _last(catalogue: Connection, number: int, position: int) -> Row | None:
    """The row of a block, or of the last one before it."""
    found = catalogue.ask(_LAST, (number, position))
    return checked(BLOCKS, found[0], (number,)) if found else None


def _following(positions: Sequence[int]) -> dict[int, int | None]:
    return dict(zip(positions, [*positions[1:], None], strict=False))


def _row(number: int, position: int, block: Block, following: int | None) -> tuple[Any, ...]:
    return number, position, block.file, block.checksum, made_to_row(block.made), following


def _block(row: Row) -> Block:
    file, checksum = row[2:4]
    if not (file is None or isinstance(file, str)) or not isinstance(checksum, str):
        raise damaged("a block has no file that can be read", f"{spelt(file)}")
    return Block(file, checksum, made_from_row(row[4]))


def _lost(number: int, position: Any) -> Exception:
    return damaged("the row of a block is lost", f"version {number}, whose block {spelt(position)} has none")
