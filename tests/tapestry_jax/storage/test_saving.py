"""Tensors that are written whole: NumPy, safetensors, PyArrow and DuckDB read them, and so do we."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tapestry_jax.storage.dtypes import ALL
from tests.tapestry_jax.storage.round_trips import SHAPES, made, numbers, read

SUFFIXES = ["npz", "safetensors", "parquet", "arrow", "duckdb"]


def peers(path: Path, name: str) -> Any:
    """What the format's own library reads."""
    if path.suffix == ".npz":
        return np.load(path)[name]
    if path.suffix == ".safetensors":
        return load_file(path)[name]
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path), read_only=True) as database:
            return np.stack([*database.execute(f'SELECT * FROM "{name}"').fetchnumpy().values()], axis=1)
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    column = table.column(name).combine_chunks()
    return column.to_numpy_ndarray() if isinstance(column, pa.FixedShapeTensorArray) else column.to_numpy()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_saved_is_read_by_others_and_by_us(tmp_path: Path, suffix: str):
    kept = {"x": numbers((50, 3)), "y": numbers((50, 2), np.int64)}
    source = made(tmp_path / "x.zarr", kept["x"], chunks=(7, 3), names=("row", "column"))
    save(tmp_path / f"s.{suffix}", {"x": source, "y": stored(kept["y"])})
    for name, array in kept.items():
        np.testing.assert_array_equal(peers(tmp_path / f"s.{suffix}", name), array)
        found = tp.open(tmp_path / f"s.{suffix}", name)
        np.testing.assert_array_equal(read(found), array)
        assert found.dtype == array.dtype
        found.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"s.{suffix}", "x.zarr"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_is_kept_or_refused(tmp_path: Path, suffix: str, shape: tuple[int, ...]):
    x, path = numbers(shape), tmp_path / f"s.{suffix}"
    is_column = bool(shape) and all(shape[1:]) and (suffix != "duckdb" or len(shape) <= 2)
    if suffix in ("npz", "safetensors") or is_column:
        save(path, {"x": stored(x)})
        found = tp.open(path)
        # A matrix of one column is a table of one column: DuckDB does not tell them apart.
        np.testing.assert_array_equal(read(found).reshape(shape), x)
        found.close()
    else:
        with pytest.raises(tp.FormatError, match=r"cannot hold|have to have as many rows"):
            save(path, {"x": stored(x)})
        assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64", "bfloat16"])
def test_every_dtype_is_kept_or_refused(tmp_path: Path, suffix: str, dtype: str):
    x, path = numbers((4, 2), ALL[dtype]), tmp_path / f"s.{suffix}"
    lacks = {"npz": ["bfloat16"], "safetensors": [], "duckdb": ["float16", "complex64", "bfloat16"]}
    if dtype in lacks.get(suffix, ["complex64", "bfloat16"]):
        with pytest.raises(tp.FormatError, match=r"cannot hold|cannot have the dtype"):
            save(path, {"x": stored(x)})
        assert [*tmp_path.iterdir()] == []
        return
    save(path, {"x": stored(x)})
    found = tp.open(path)
    assert found.dtype == x.dtype and read(found).tobytes() == x.tobytes()
    found.close()


@pytest.mark.parametrize("suffix", [*SUFFIXES, "feather"])
def test_every_other_dtype_is_kept_or_refused_too(tmp_path: Path, suffix: str):
    kept = 0
    for name, dtype in ALL.items():
        path = tmp_path / f"{name}.{suffix}"
        array = np.ones((4, 2), dtype)
        try:
            save(path, {"x": stored(array)})
        except tp.FormatError:
            assert not path.exists()
            continue
        kept += 1
        found = tp.open(path)
        assert found.dtype == dtype and read(found).tobytes() == array.tobytes()
        found.close()
    assert kept >= 8


def test_a_pipe_or_a_device_stays_one(tmp_path: Path):
    pipe = tmp_path / "s.npz"
    os.mkfifo(pipe)
    for overwrite in (False, True):
        with pytest.raises(tp.StorageError, match="is a device or a pipe"):
            save(pipe, {"x": stored(np.ones(3))}, overwrite=overwrite)
    assert pipe.is_fifo() and [*tmp_path.iterdir()] == [pipe]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_large_tensors_are_written_in_pieces(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tapestry_jax.storage.files.pieces._BYTES", 64)
    x = numbers((41, 2), np.float64)
    save(tmp_path / f"s.{suffix}", {"x": stored(x)})
    np.testing.assert_array_equal(peers(tmp_path / f"s.{suffix}", "x"), x)
    assert tp.open(tmp_path / f"s.{suffix}").chunks[0] == {"parquet": 4, "arrow": 4}.get(suffix, 41)


def test_columns_of_one_table_have_as_many_rows(tmp_path: Path):
    with pytest.raises(tp.FormatError, match="have to have as many rows\n  got `x`: 3, `y`: 2"):
        save(tmp_path / "s.parquet", {"x": stored(numbers((3,))), "y": stored(numbers((2,)))})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_there_stays_until_the_new_file_is_whole(tmp_path: Path, suffix: str):
    path = tmp_path / f"s.{suffix}"
    save(path, {"x": stored(numbers((3,)))})
    with pytest.raises(tp.StorageError, match="is there already"):
        save(path, {"x": stored(numbers((4,)))})
    gone = made(tmp_path / "x.npy", numbers((4,)))
    gone.close()
    with pytest.raises(tp.StorageError, match="is closed"):
        save(path, {"x": gone}, overwrite=True)
    assert read(tp.open(path)).tolist() == numbers((3,)).tolist()
    save(path, {"x": stored(numbers((4,)))}, overwrite=True)
    assert read(tp.open(path)).tolist() == numbers((4,)).tolist()
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"s.{suffix}", "x.npy"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["../x", "/x", "a/../x", "", 3])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, suffix: str, name: Any):
    with pytest.raises(tp.FormatError, match="is no name of a tensor"):
        save(tmp_path / f"s.{suffix}", {name: stored(numbers((3,)))})


def test_names_of_tables_are_no_sql(tmp_path: Path):
    name = 'x"; DROP TABLE kept; --'
    save(tmp_path / "s.duckdb", {"kept": stored(numbers((2,))), name: stored(numbers((3,)))})
    assert read(tp.open(tmp_path / "s.duckdb", name)).tolist() == numbers((3,)).tolist()
    assert tp.open(tmp_path / "s.duckdb", "kept").shape == (2,)


@pytest.mark.parametrize(("tensors", "told"), [({}, "by name"), ([1], "by name"), ({"x": np.zeros(3)}, "by name")])
def test_what_is_no_tensor_by_name_is_refused(tmp_path: Path, tensors: Any, told: str):
    with pytest.raises(tp.FormatError, match=told):
        save(tmp_path / "s.npz", tensors)
    with pytest.raises(tp.FormatError, match="save does not know the format"):
        save(tmp_path / "s.npy", {"x": stored(numbers((3,)))})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_is_told_and_nothing_stays(tmp_path: Path, small_files: int, suffix: str):
    x = np.random.default_rng(0).random((small_files // 4, 2))
    with pytest.raises(tp.StorageError, match="no room for"):
        save(tmp_path / f"s.{suffix}", {"x": stored(x)})
    assert [*tmp_path.iterdir()] == []


def test_what_a_killed_process_left_beside_a_database_is_no_part_of_it(tmp_path: Path):
    (tmp_path / "s.duckdb.partial").mkdir()
    (tmp_path / "s.duckdb.partial" / "s.duckdb").write_bytes(b"half")
    (tmp_path / "s.duckdb.partial" / "s.duckdb.wal").write_bytes(b"half")
    save(tmp_path / "s.duckdb", {"x": stored(numbers((3,)))})
    assert read(tp.open(tmp_path / "s.duckdb")).tolist() == numbers((3,)).tolist()
    assert [each.name for each in tmp_path.iterdir()] == ["s.duckdb"]
