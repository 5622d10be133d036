"""What is written is read, in every format, of every shape and dtype."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import Sink, Stored, stored
from tapestry_jax.storage.boxes import slices
from tapestry_jax.storage.dtypes import ALL, PLAIN, ZARR
from tests.forgotten import is_forgotten
from tests.tapestry_jax.storage.round_trips import MADE, SHAPES, boxes, made, numbers, read, write


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MADE)
def test_boxes_that_were_written_are_read(tmp_path: Path, name: str, shape: tuple[int, ...]):
    x = numbers(shape)
    source = made(tmp_path / name, x, MADE[name], chunks=tuple(min(2, max(1, n)) for n in shape))
    assert (source.shape, source.dtype) == (x.shape, x.dtype)
    assert len(source.chunks) == x.ndim and min((1, *source.chunks)) == 1
    for box in boxes(shape):
        np.testing.assert_array_equal(read(source, box), x[slices(box)])
    source.close()


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", MADE)
def test_every_dtype_is_kept_or_refused(tmp_path: Path, name: str, dtype: str):
    x = numbers((4, 3), ALL[dtype])
    if dtype not in (PLAIN if name == "x.npy" else ZARR):
        with pytest.raises(
            tp.FormatError, match=f"^a (file .npy|Zarr array) cannot have the dtype {dtype}\n  expected"
        ):
            made(tmp_path / name, x)
        return
    source = made(tmp_path / name, x, MADE[name])
    assert source.dtype == x.dtype
    assert read(source).tobytes() == x.tobytes()
    source.close()


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3).T, np.arange(4, dtype=">i4"), 3.0, [[1, 2]], True])
def test_arrays_in_memory_are_read_as_stored(array: Any):
    source = stored(array)
    assert isinstance(source, Stored) and source.dtype.isnative
    np.testing.assert_array_equal(read(source), np.asarray(array))


@pytest.mark.parametrize("name", MADE)
def test_a_file_is_what_a_sink_and_a_source_are_by_protocol(tmp_path: Path, name: str):
    sink = tp.create(tmp_path / name, format=MADE[name]).make((2,), np.float32)
    assert isinstance(sink, Sink)
    source = write(sink, numbers((2,)))
    assert isinstance(source, Stored)
    source.close()


def test_what_is_stored_is_a_spec_that_trace_takes(tmp_path: Path):
    made(tmp_path / "x.npy", numbers((4, 3))).close()
    graph = tp.trace(tp.fold(tp.aggregators.Mean(), "row column -> column"), tp.open(tmp_path / "x.npy"))
    np.testing.assert_allclose(graph(numbers((4, 3))), numbers((4, 3)).mean(0), rtol=1e-6)


@pytest.mark.parametrize("name", MADE)
def test_what_is_forgotten_lets_its_files_go(tmp_path: Path, name: str):
    made(tmp_path / name, numbers((3,)), MADE[name]).close()

    def run() -> bool:
        files = len([*Path("/proc/self/fd").iterdir()])
        for _ in range(5):
            read(tp.open(tmp_path / name))
            sink = tp.create(tmp_path / name, format=MADE[name], overwrite=True).make((3,), np.float32)
            sink.write(((0, 3),), numbers((3,))).result()
            del sink
        gc.collect()
        return len([*Path("/proc/self/fd").iterdir()]) <= files

    assert is_forgotten(run)


@pytest.mark.parametrize("name", MADE)
def test_many_boxes_are_under_way_at_once(tmp_path: Path, name: str):
    x = numbers((64, 33), np.float64)
    sink = tp.create(tmp_path / name, format=MADE[name]).make(x.shape, x.dtype, chunks=(16, 33))
    parts = [((row, row + 1), (left, left + 11)) for row in range(64) for left in (0, 11, 22)]
    # Parts of one chunk, written at the same time, do not undo each other.
    for done in [sink.write(box, x[slices(box)]) for box in parts]:
        done.result(timeout=60)
    source, into = sink.finish(), np.zeros_like(x)
    targets = [np.empty((1, 11)) for _ in parts]
    for done in [source.read(box, target) for box, target in zip(parts, targets, strict=True)]:
        done.result(timeout=60)
    for box, target in zip(parts, targets, strict=True):
        into[slices(box)] = target
    np.testing.assert_array_equal(into, x)
    source.close()


def test_arrays_of_jax_are_stored_in_memory():
    x = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    assert read(stored(x), ((1, 2), (0, 2))).astype(np.float32).tolist() == [[3, 4]]


def test_what_is_open_prints_as_its_place_and_type(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((6, 2), np.int16))
    sink = tp.create(str(tmp_path / "x.zarr"), chunks=(4, 2)).make((6, 2), np.float32, names=("row", None))
    sink.write(((0, 6), (0, 2)), np.zeros((6, 2), np.float32)).result()
    assert repr(tp.open(str(tmp_path / "x.npy"))).endswith("x.npy: int16(6, 2)>")
    assert repr(sink.finish()).endswith("x.zarr: float32(row=6, _=2) in pieces of (4, 2)>")
    assert repr(tp.create(tmp_path / "y.npy")).endswith("y.npy: to be made>")
    assert repr(tp.create(tmp_path / "y.zarr", chunks=(4, 2))).endswith("y.zarr: to be made in pieces of (4, 2)>")
    assert repr(stored(np.float32(1))) == "<an array in memory, float32 (): float32()>"
