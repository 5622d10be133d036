"""Rows of sealed tables: read and checked, written and counted.

Names, snapshots and what is being written keep versions alive, and whatever nothing keeps is forgotten: a row of them
that was lost would take its blocks along. How many there are stands in `totals`, and what the squares of their versions
add up to: SQLite compares that with what is there before anything is forgotten.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from combinators.errors import spelt
from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.catalogue.seals import Row, Table, checked, seal, squares
from tapestry_jax.fabric.tensors.records import damaged

_SQUARES = "COALESCE(SUM(CASE WHEN version BETWEEN 0 AND 1 << 30 THEN version * version END), 0)"


def rows(catalogue: Connection, table: Table, *key: Any) -> list[Row]:
    """The rows of a table under the first columns of its key, in its order, each checked.

    Raises:
      FormatError: where one is not as it was written, or stands there twice.
    """
    order = ", ".join(table.columns[: table.keys])
    question = f"SELECT {table.asked} FROM {table.name} WHERE {table.key(len(key))} ORDER BY {order}"
    found = [checked(table, row, key) for row in catalogue.ask(question, key)]
    for one, other in itertools.pairwise(found):
        if one[: table.keys] >= other[: table.keys]:
            raise damaged(f"a row of `{table.name}` stands there twice", spelt(other, 200))
    return found


def all_rows(catalogue: Connection, table: Table) -> list[Row]:
    """All rows of a table that is counted, by their key, each checked.

    Raises:
      FormatError: where one is lost, or not as it was written.
    """
    with catalogue.reading():
        found = rows(catalogue, table)
        _compare(catalogue, table, (len(found), squares(table, found)))
    return found


def put(catalogue: Connection, table: Table, *fields: Any) -> None:
    """Write a row in the place of the one with its key, inside of a transaction.

    Raises:
      FormatError: where that one is not as it was written.
    """
    put_all(catalogue, table, [fields], rows(catalogue, table, *fields[: table.keys]))


def put_all(
    catalogue: Connection, table: Table, found: Sequence[Sequence[Any]], before: Sequence[Sequence[Any]] = ()
) -> None:
    """Write rows, inside of a transaction.

    Args:
      catalogue: where.
      table: which.
      found: the rows.
      before: those that they take the place of, by their keys.

    Raises:
      FormatError: where one that was there cannot be removed.
    """
    _remove(catalogue, table, before)
    if found:
        statement = f"INSERT INTO {table.name} ({table.asked}) VALUES ({'?, ' * len(table.columns)}?)"
        catalogue.tell_each(statement, [(*fields, seal(table, fields)) for fields in found])
    if table.is_counted:
        _count(catalogue, table, found, before)


def drop(catalogue: Connection, table: Table, *key: Any) -> None:
    """Remove the rows under the first columns of the key, inside of a transaction.

    Raises:
      FormatError: where one of them is not as it was written.
    """
    put_all(catalogue, table, [], rows(catalogue, table, *key))


def check_total(catalogue: Connection, table: Table) -> None:
    """That no row of a table is lost, and that they name the versions that they did. SQLite counts them.

    Raises:
      FormatError: where it is not so.
    """
    summed = _SQUARES if "version" in table.columns else "0"
    with catalogue.reading():
        [found] = catalogue.ask(f"SELECT COUNT(*), {summed} FROM {table.name}")
        _compare(catalogue, table, found)


def _compare(catalogue: Connection, table: Table, found: Row) -> None:
    wanted = catalogue.ask("SELECT rows, squares FROM totals WHERE of = ?", (table.name,))
    if [found] != wanted:
        counted = f"{wanted[0][0]!r:.40} were written" if wanted else "nobody knows how many were written"
        raise damaged(f"rows of `{table.name}` are lost, or are others", f"{found[0]}, and {counted}")


def _remove(catalogue: Connection, table: Table, before: Sequence[Sequence[Any]]) -> None:
    """Remove rows by their keys: a page that was damaged may hide one, which would then stand beside the new one."""
    if before:
        statement = f"DELETE FROM {table.name} WHERE {table.key(table.keys)}"
        removed = catalogue.tell_each(statement, [row[: table.keys] for row in before])
        if removed != len(before):
            told = f"{removed} of {len(before)} rows of `{table.name}`"
            raise damaged("rows that are there cannot be found again", told)


def _count(
    catalogue: Connection, table: Table, fresh: Sequence[Sequence[Any]], before: Sequence[Sequence[Any]]
) -> None:
    """Say in `totals` that rows came, in the place of others."""
    more = len(fresh) - len(before)
    larger = squares(table, fresh) - squares(table, before)
    if more or larger:
        statement = "UPDATE totals SET rows = rows + ?, squares = squares + ? WHERE of = ?"
        catalogue.tell(statement, (more, larger, table.name))
