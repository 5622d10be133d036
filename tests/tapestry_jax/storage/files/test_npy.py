"""Files .npy: what NumPy writes is read, and what is written NumPy reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage.boxes import shape_of, slices, whole
from tapestry_jax.storage.files.strided import Layout, read_box
from tests.tapestry_jax.storage.round_trips import SHAPES, boxes, made, numbers, read


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numpy_reads_what_we_write(tmp_path: Path, shape: tuple[int, ...]):
    x = numbers(shape, np.int16)
    made(tmp_path / "x.npy", x).close()
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy", allow_pickle=False), x)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i2", "<c16", "?", ">u8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_we_read_what_numpy_writes(tmp_path: Path, shape: tuple[int, ...], order: Any, dtype: str):
    x = np.asarray(numbers(shape, dtype), order=order)
    np.save(tmp_path / "x.npy", x)
    source = tp.open(tmp_path / "x.npy")
    assert source.dtype == x.dtype.newbyteorder("=") and source.dtype.isnative
    for box in boxes(shape):
        np.testing.assert_array_equal(read(source, box), x[slices(box)])
    source.close()


@pytest.mark.parametrize(("rows", "columns"), [(1000, 700), (3, 300_000)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_boxes_are_read_through_small_buffers(tmp_path: Path, rows: int, columns: int, order: Any):
    x = np.asarray(np.arange(rows * columns, dtype=np.float64).reshape(rows, columns), order=order)
    np.save(tmp_path / "x.npy", x)
    source = tp.open(tmp_path / "x.npy")
    for box in [
        whole(x.shape),
        ((1, rows), (5, columns - 7)),
        ((0, rows), (columns - 1, columns)),
        ((2, 3), (0, columns)),
    ]:
        np.testing.assert_array_equal(read(source, box), x[slices(box)])
    source.close()


class Counted:
    """Bytes in memory that remember which ranges were asked for."""

    where = "bytes"

    def __init__(self, content: bytes) -> None:
        self.content, self.size = content, len(content)
        self.asked: list[tuple[int, int]] = []

    def read(self, offset: int, into: memoryview) -> None:
        self.asked.append((offset, len(into)))
        into[:] = self.content[offset : offset + len(into)]

    def fingerprint(self) -> str:
        return ""

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("box", "asked"),
    [
        (((2, 5), (0, 1024)), [(2 * 8192, 3 * 8192)]),  # rows: one range, as it is wanted
        (((3, 4), (7, 9)), [(3 * 8192 + 56, 16)]),
        (((0, 3), (1000, 1001)), [(8000, 8), (8192 + 8000, 8), (2 * 8192 + 8000, 8)]),  # far apart: each alone
        (((0, 3), (0, 512)), [(0, 2 * 8192 + 4096)]),  # half of it is wanted: with what lies between
        (((0, 0), (0, 512)), []),
    ],
    ids=str,
)
def test_what_is_read_is_little_more_than_what_is_wanted(box: Any, asked: list[tuple[int, int]]):
    x = np.arange(8 * 1024, dtype=np.float64).reshape(8, 1024)
    source, into = Counted(x.tobytes()), np.empty(shape_of(box))
    read_box(source, Layout.of(0, x.shape, x.dtype), box, into)
    np.testing.assert_array_equal(into, x[slices(box)])
    assert source.asked == asked


def test_narrow_rows_are_read_with_what_lies_between():
    # A disk reads the pages of all rows anyway: one call for all is less than one for each.
    x = np.arange(640.0).reshape(40, 16)
    source, into = Counted(x.tobytes()), np.empty((40, 1))
    read_box(source, Layout.of(0, x.shape, x.dtype), ((0, 40), (3, 4)), into)
    np.testing.assert_array_equal(into, x[:, 3:4])
    assert source.asked == [(24, 39 * 128 + 8)]
