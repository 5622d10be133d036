"""Rows that damaged pages hide, or show twice, are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.catalogue.rows import all_rows, drop, put, put_all, rows
from tapestry_jax.fabric.catalogue.seals import TENSORS


@pytest.fixture
def catalogue() -> Iterator[Connection]:
    catalogue = Connection(None)
    for name, number in (("x", 1), ("y", 2), ("x", 3), ("z", 4)):
        put(catalogue, TENSORS, name, number)
    yield catalogue
    catalogue.close()


def test_rows_are_counted_as_they_come_and_go(catalogue: Connection):
    assert all_rows(catalogue, TENSORS) == [("x", 3), ("y", 2), ("z", 4)]
    drop(catalogue, TENSORS, "x")
    drop(catalogue, TENSORS, "nobody")
    assert all_rows(catalogue, TENSORS) == [("y", 2), ("z", 4)]
    assert catalogue.ask("SELECT rows, squares FROM totals WHERE of = 'tensors'") == [(2, 20)]


def test_a_row_that_cannot_be_found_again_is_not_doubled(catalogue: Connection):
    catalogue.tell("DELETE FROM tensors WHERE name = 'x'")  # as where a page hides it
    with pytest.raises(tp.FormatError, match="cannot be found again\n  got 0 of 1 rows of `tensors`"):
        put_all(catalogue, TENSORS, [("x", 5)], [("x", 3)])


def test_a_row_that_stands_there_twice_is_told(catalogue: Connection, monkeypatch: pytest.MonkeyPatch):
    ask = catalogue.ask
    monkeypatch.setattr(catalogue, "ask", lambda *asked: [row for row in ask(*asked) for _ in range(2)])
    with pytest.raises(tp.FormatError, match="a row of `tensors` stands there twice"):
        rows(catalogue, TENSORS, "y")
