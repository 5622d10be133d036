"""Chunks that are read straight into the arrays of who asks, and what is left to TensorStore."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, GzipCodec

import tapestry_jax as tp
from tapestry_jax.storage.chunked import plain
from tapestry_jax.storage.chunked import zarr as ours
from tests.tapestry_jax.storage.round_trips import MADE, made, numbers

X = numbers((6, 4), "float32")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what goes through TensorStore, as they come."""
    found, begin = list[tuple[int, ...]](), ours._read  # pyright: ignore[reportPrivateUsage]

    def seen(store: Any, into: Any) -> Any:
        found.append(into.shape)
        return begin(store, into)

    monkeypatch.setattr(ours, "_read", seen)
    return found


def _read(place: Path, rows: tuple[int, int] = (0, 6), columns: tuple[int, int] = (0, 4)) -> np.ndarray:
    source = tp.open(place)
    into = np.empty((rows[1] - rows[0], columns[1] - columns[0]), source.dtype)
    try:
        source.read((rows, columns), into).result()
    finally:
        source.close()
    return into


@pytest.mark.parametrize("name", ["x.zarr", "x2.zarr"])
@pytest.mark.parametrize(
    ("chunks", "rows", "columns", "through"),
    [
        ((2, 4), (0, 6), (0, 4), []),
        ((2, 4), (2, 4), (0, 4), []),
        ((1, 2), (3, 4), (0, 4), []),
        # A chunk that is read in part, that lies apart in the array, or that goes beyond the tensor.
        ((2, 4), (1, 2), (0, 4), [(1, 4)]),
        ((2, 2), (2, 4), (0, 4), [(2, 4)]),
        ((4, 4), (4, 6), (0, 4), [(2, 4)]),
    ],
)
def test_whole_chunks_are_read_without_tensorstore(
    tmp_path: Path,
    decoded: list[tuple[int, ...]],
    name: str,
    chunks: tuple[int, int],
    rows: tuple[int, int],
    columns: tuple[int, int],
    through: list[tuple[int, int]],
) -> None:
    made(tmp_path / name, X, MADE[name], chunks=chunks).close()
    np.testing.assert_array_equal(_read(tmp_path / name, rows, columns), X[slice(*rows), slice(*columns)])
    assert decoded == through


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "complex64"])
def test_every_dtype_is_read_so(tmp_path: Path, decoded: list[tuple[int, ...]], dtype: str) -> None:
    x = numbers((6, 4), dtype)
    made(tmp_path / "x.zarr", x, MADE["x.zarr"], chunks=(2, 4)).close()
    np.testing.assert_array_equal(_read(tmp_path / "x.zarr"), x)
    assert decoded == []


@pytest.mark.parametrize(
    ("options", "is_plain"),
    [
        ({"zarr_format": 3, "compressors": None}, True),
        ({"zarr_format": 3, "compressors": None, "chunk_key_encoding": {"name": "v2", "separator": "."}}, True),
        ({"zarr_format": 3, "compressors": None, "chunk_key_encoding": {"name": "default", "separator": "."}}, True),
        ({"zarr_format": 2, "compressors": None}, True),
        ({"zarr_format": 3, "compressors": GzipCodec()}, False),
        ({"zarr_format": 3, "compressors": None, "serializer": BytesCodec(endian="big")}, False),
        ({"zarr_format": 3, "compressors": None, "shards": (6, 4)}, False),
        ({"zarr_format": 2, "compressors": None, "order": "F"}, False),
        ({"zarr_format": 2, "compressors": None, "dtype": ">f4"}, False),
    ],
)
def test_what_zarr_python_writes_is_decoded_where_it_is_encoded(
    tmp_path: Path, decoded: list[tuple[int, ...]], options: dict[str, Any], is_plain: bool
) -> None:
    given: dict[str, Any] = {"shape": (6, 4), "dtype": "f4", "chunks": (2, 4)} | options
    theirs: Any = zarr.create_array(tmp_path / "x.zarr", **given)
    theirs[:] = X
    np.testing.assert_array_equal(_read(tmp_path / "x.zarr"), X)
    assert (decoded == []) is is_plain


def _cut(chunk: Path) -> None:
    chunk.write_bytes(chunk.read_bytes()[:-5])


def _flipped(chunk: Path) -> None:
    whole = bytearray(chunk.read_bytes())
    whole[7] ^= 1
    chunk.write_bytes(whole)


def _gone(chunk: Path) -> None:
    chunk.unlink()


@pytest.mark.parametrize("damage", [_cut, _flipped, _gone])
def test_damage_is_told_as_tensorstore_tells_it(
    tmp_path: Path, decoded: list[tuple[int, ...]], damage: Callable[[Path], None]
) -> None:
    made(tmp_path / "x.zarr", X, MADE["x.zarr"], chunks=(2, 4)).close()
    damage(tmp_path / "x.zarr" / "c" / "1" / "0")
    np.testing.assert_array_equal(_read(tmp_path / "x.zarr", (4, 6)), X[4:])
    with pytest.raises(tp.FormatError, match=r"cannot read the box \[0:6, 0:4\]"):
        _read(tmp_path / "x.zarr")
    assert decoded


def test_files_of_another_length_are_left_to_tensorstore(tmp_path: Path, decoded: list[tuple[int, ...]]) -> None:
    made(tmp_path / "x.zarr", X, MADE["x.zarr"], chunks=(2, 4)).close()
    chunk = tmp_path / "x.zarr" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes() + b"\0")
    # It takes what it expects, and looks no further.
    np.testing.assert_array_equal(_read(tmp_path / "x.zarr"), X)
    assert decoded == [(6, 4)]


def test_a_pipe_in_the_place_of_a_chunk_is_not_waited_for(tmp_path: Path) -> None:
    chunk = tmp_path / "c" / "0" / "0"
    chunk.parent.mkdir(parents=True)
    os.mkfifo(chunk)
    found = plain.read_chunks(tmp_path, plain.Plain("c/", "/", is_checked=False), [((0, 0), np.empty(4, np.float32))])
    assert not found


def test_without_the_package_of_checksums_all_is_decoded(
    tmp_path: Path, decoded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "x.zarr", X, MADE["x.zarr"], chunks=(2, 4)).close()
    monkeypatch.setattr(plain, "_checksum", lambda: None)
    np.testing.assert_array_equal(_read(tmp_path / "x.zarr"), X)
    assert decoded


def test_an_array_is_read_where_it_was_opened_wherever_the_process_goes(
    tmp_path: Path, decoded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, x in (("a", X), ("b", -X)):
        (tmp_path / name).mkdir()
        made(tmp_path / name / "x.zarr", x, MADE["x.zarr"], chunks=(2, 4)).close()
    monkeypatch.chdir(tmp_path / "a")
    source, into = tp.open("x.zarr"), np.empty_like(X)
    before = source.fingerprint()
    monkeypatch.chdir(tmp_path / "b")
    source.read(((0, 6), (0, 4)), into).result()
    np.testing.assert_array_equal(into, X)
    assert (source.fingerprint(), decoded) == (before, [])
    source.close()
