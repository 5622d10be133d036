"""Columns are read in any order of boxes, whatever is kept from one to the next."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tapestry_jax.storage.tables.columns import PIECE, Column, put

ROWS = 3 * PIECE // 8 + 1001
"""Of more than three pieces of float64."""


def numbers(kind: str) -> Any:
    drawn = np.random.default_rng(0).normal(size=(ROWS, 2))
    return {"plain": drawn[:, 0], "cells": drawn.astype(np.float32), "bool": drawn[:, 0] > 0}[kind]


def write(path: Path, name: str, x: Any) -> None:
    if path.suffix == ".duckdb":
        save(path, {"v": stored(x)})
        return
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = arrow.array(x) if x.ndim == 1 else arrow.FixedShapeTensorArray.from_numpy_ndarray(x)
    size = 10**9 if name == "one" else ROWS // 5
    # What lies in front of it has buffers of its own.
    before = {"texts": arrow.array(["a"] * len(x)), "lists": arrow.array([[1.0]] * len(x))}
    if path.suffix == ".parquet":
        parquet.write_table(arrow.table({**before, "v": column}), path, row_group_size=size)
    else:
        words = {"compression": "lz4" if path.suffix == ".feather" else "uncompressed"}
        importlib.import_module("pyarrow.feather").write_feather(
            arrow.table({**before, "v": column}), path, chunksize=size, **words
        )


def boxes(order: str) -> Iterator[tuple[int, int]]:
    step = 7001
    starts = [*range(0, ROWS, step)]
    if order == "drawn":
        drawn = np.random.default_rng(1)
        for _ in range(25):
            start = int(drawn.integers(0, ROWS))
            yield start, int(drawn.integers(start, min(ROWS, start + 3 * step) + 1))
        return
    halo = 5 if order == "overlapping" else 0
    for start in {"backwards": starts[::-1], "twice": [*starts, *starts]}.get(order, starts):
        yield max(0, start - halo), min(ROWS, start + step + halo)


@pytest.mark.parametrize("order", ["in order", "backwards", "twice", "overlapping", "drawn"])
@pytest.mark.parametrize(
    ("suffix", "name", "kind"),
    [
        (".parquet", "one", "plain"),
        (".parquet", "some", "cells"),
        (".parquet", "some", "bool"),
        (".arrow", "one", "cells"),
        (".arrow", "some", "bool"),
        (".feather", "some", "plain"),
        (".duckdb", "one", "plain"),
    ],
)
def test_columns_are_read_in_any_order(tmp_path: Path, suffix: str, name: str, kind: str, order: str):
    pytest.importorskip("duckdb" if suffix == ".duckdb" else "pyarrow")
    x, path = numbers(kind), tmp_path / f"x{suffix}"
    write(path, name, x)
    source = tp.open(path, "v")
    assert (source.shape, source.dtype) == (x.shape, x.dtype)
    for start, stop in boxes(order):
        into = np.empty((stop - start, *x.shape[1:]), x.dtype)
        source.read(((start, stop), *((0, size) for size in x.shape[1:])), into).result()
        assert np.array_equal(into, x[start:stop]), (start, stop)
    source.close()


def test_a_box_of_some_cells_of_rows_is_read(tmp_path: Path):
    pytest.importorskip("pyarrow")
    x = numbers("cells")
    for suffix in (".parquet", ".arrow"):
        write(tmp_path / f"x{suffix}", "some", x)
        source, into = tp.open(tmp_path / f"x{suffix}", "v"), np.empty((30_000, 1), np.float32)
        source.read(((20_000, 50_000), (1, 2)), into).result()
        np.testing.assert_array_equal(into, x[20_000:50_000, 1:])


COLUMN = Column((10,), (), np.dtype(np.float64), "x, `v`")


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([(0, np.zeros(4))], "expected rows 2 to 8"),
        ([(0, np.zeros(4)), (5, np.zeros(5))], "from row 4 on"),
        ([(0, np.zeros(10, np.float32))], "expected float64"),
        ([(0, np.zeros((10, 1)))], r"got float64 \(10, 1\)"),
    ],
)
def test_rows_that_are_not_what_was_said_are_told(pieces: Any, told: str):
    with pytest.raises(tp.FormatError, match=rf"rows of `x, `v`` are not what was said(.|\n)*{told}"):
        put(pieces, COLUMN, ((2, 8),), np.empty(6))
