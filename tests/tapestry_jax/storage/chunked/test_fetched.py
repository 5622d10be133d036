"""Zarr in a store that fsspec reads, written by zarr-python and by this library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.storage.round_trips import boxes, made, numbers, read

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
zarr = pytest.importorskip("zarr", reason="needs zarr")

KINDS: dict[str, dict[str, Any]] = {
    "3": {"chunks": (3, 2)},
    "2": {"chunks": (3, 2), "zarr_format": 2},
    "2, in folders": {"chunks": (3, 2), "zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "3, as 2": {"chunks": (3, 2), "chunk_key_encoding": {"name": "v2", "separator": "."}},
    "3, dots": {"chunks": (3, 2), "chunk_key_encoding": {"name": "default", "separator": "."}},
    "shards": {"chunks": (2, 2), "shards": (4, 4)},
    "plain": {"chunks": (3, 2), "compressors": None},
}


@pytest.fixture
def store() -> Any:
    found = fsspec.filesystem("memory")
    yield found
    found.store.clear()


def put(store: Any, folder: Path) -> None:
    """Copy a folder into the store."""
    for path in folder.rglob("*"):
        if path.is_file():
            store.pipe(f"/bucket/{folder.name}/{path.relative_to(folder)}", path.read_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_what_zarr_python_writes_is_read(kind: str, tmp_path: Path, store: Any) -> None:
    x = numbers((7, 5))
    array = zarr.create_array(tmp_path / "x.zarr", shape=x.shape, dtype=x.dtype, **KINDS[kind])
    array[:] = x
    put(store, tmp_path / "x.zarr")
    source = tp.open("memory://bucket/x.zarr")
    for box in boxes(x.shape):
        np.testing.assert_array_equal(read(source, box), x[tuple(slice(a, b) for a, b in box)])
    source.close()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 0), (1, 1)])
def test_degenerate_shapes_are_read(shape: tuple[int, ...], tmp_path: Path, store: Any) -> None:
    x = numbers(shape)
    made(tmp_path / "x.zarr", x).close()
    put(store, tmp_path / "x.zarr")
    source = tp.open("memory://bucket/x.zarr")
    np.testing.assert_array_equal(read(source), x)
    source.close()


def test_names_arrays_in_groups_and_fingerprints(tmp_path: Path, store: Any) -> None:
    x = numbers((7, 5))
    (tmp_path / "group").mkdir()
    made(tmp_path / "group" / "x.zarr", x, names=("row", None)).close()
    put(store, tmp_path / "group")
    source = tp.open("memory://bucket/group", "x.zarr", format="zarr")
    assert source.names == ("row", None)
    before = source.fingerprint()
    assert source.fingerprint() == before
    chunk = next(path for path in store.store if "/c/" in path)
    store.pipe(chunk, store.cat_file(chunk)[::-1])
    assert source.fingerprint() != before
    with pytest.raises(tp.FormatError, match=r"`memory:..bucket/group/x[.]zarr` is damaged"):
        read(source)
    # What this library makes has all of its chunks: a missing one is no zeros.
    store.rm(chunk)
    with pytest.raises(tp.FormatError, match="cannot read the box"):
        read(source)
    source.close()


def test_a_missing_chunk_of_others_is_their_fill_value(tmp_path: Path, store: Any) -> None:
    array = zarr.create_array(tmp_path / "x.zarr", shape=(4,), chunks=(2,), dtype="f4", fill_value=7)
    array[:2] = 1
    put(store, tmp_path / "x.zarr")
    assert read(tp.open("memory://bucket/x.zarr")).tolist() == [1, 1, 7, 7]


@pytest.mark.parametrize("kind", ["3", "2", "shards"])
def test_a_chunk_of_others_that_was_there_is_not_filled_in(kind: str, tmp_path: Path, store: Any) -> None:
    x = numbers((8, 4))
    array = zarr.create_array(tmp_path / "x.zarr", shape=x.shape, dtype=x.dtype, **KINDS[kind])
    array[:4] = x[:4]
    put(store, tmp_path / "x.zarr")
    source = tp.open("memory://bucket/x.zarr")
    np.testing.assert_array_equal(read(source)[:4], x[:4])
    lost = "0.0" if kind == "2" else "c/0/0"
    store.rm(f"/bucket/x.zarr/{lost}")
    with pytest.raises(tp.StorageError, match=rf"the chunk `{lost}` lay there then, and is gone\n  Put it back"):
        read(source)
    assert not read(source, ((6, 8), (0, 4))).any() and not read(tp.open("memory://bucket/x.zarr"))[0, :2].any()


def test_a_store_that_nobody_may_list_is_read(tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    array = zarr.create_array(tmp_path / "x.zarr", shape=(4,), chunks=(2,), dtype="f4", fill_value=7)
    array[:2] = 1
    put(store, tmp_path / "x.zarr")

    def denied(*_: Any, **__: Any) -> Any:
        raise PermissionError

    monkeypatch.setattr(type(store), "find", denied)
    assert read(tp.open("memory://bucket/x.zarr")).tolist() == [1, 1, 7, 7]


def test_a_store_that_fails_is_told_by_its_kind(tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "x.zarr", numbers((4, 3))).close()
    put(store, tmp_path / "x.zarr")
    source = tp.open("memory://bucket/x.zarr")

    def denied(*_: Any, **__: Any) -> Any:
        raise RuntimeError("signature s3cret is not known")

    monkeypatch.setattr(type(store), "cat_file", denied)
    with pytest.raises(tp.StorageError) as raised:
        read(source)
    assert "does not answer\n  RuntimeError of builtins" in str(raised.value) and "s3cret" not in str(raised.value)
    source.close()
    with pytest.raises(tp.StorageError, match="is closed"):
        read(source)


def test_streams_read_them_with_chunks_of_any_size(tmp_path: Path, store: Any) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (40, 3)).astype(np.float32)
    array = zarr.create_array(tmp_path / "x.zarr", shape=x.shape, chunks=(7, 2), dtype="f4")
    array[:] = x
    put(store, tmp_path / "x.zarr")
    total = tp.fold(tp.aggregators.Sum(), "row c -> c")
    found = tp.stream(total, {"row": tp.chunks(size=9)}, tp.open("memory://bucket/x.zarr")).run()
    np.testing.assert_array_equal(found, x.sum(0))
