"""Bytes in stores that fsspec reads; the one in memory stands for them, and one of ours that fails."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tapestry_jax.storage.places import shown_address
from tests.tapestry_jax.storage.round_trips import boxes, made, numbers, read

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")


@pytest.fixture
def store() -> Any:
    found = fsspec.filesystem("memory")
    yield found
    found.store.clear()


@pytest.mark.parametrize("name", ["x.npy", "x.safetensors", "x.npz", "x.parquet", "x.arrow"])
def test_formats_of_bytes_are_read_from_stores(tmp_path: Path, store: Any, name: str):
    x = numbers((5, 3))
    if name in ("x.npy", "x.safetensors"):
        made(tmp_path / name, x).close()
    else:
        save(tmp_path / name, {"x": stored(x)})
    store.pipe(f"/bucket/{name}", (tmp_path / name).read_bytes())
    source = tp.open(f"memory://bucket/{name}")
    for box in boxes(x.shape):
        np.testing.assert_array_equal(read(source, box), x[tuple(slice(a, b) for a, b in box)])
    source.close()


def test_bytes_that_are_cut_off_or_gone_are_told(tmp_path: Path, store: Any):
    np.save(tmp_path / "x.npy", x := numbers((5, 3)))
    content = (tmp_path / "x.npy").read_bytes()
    store.pipe("/x.npy", content[:-8])
    with pytest.raises(tp.FormatError, match=r"`memory:..x[.]npy` is truncated"):
        tp.open("memory://x.npy")
    store.pipe("/x.npy", content)
    source = tp.open("memory://x.npy")
    source.fingerprint()
    store.pipe("/x.npy", content[:-8])
    with pytest.raises(tp.FormatError, match="is truncated"):
        read(source)
    with pytest.raises(tp.StorageError, match=r"`memory:..x[.]npy` was written since it was opened"):
        source.fingerprint()
    store.rm("/x.npy")
    with pytest.raises(tp.StorageError, match=r"`memory:..x[.]npy` is not there"):
        read(source)
    with pytest.raises(tp.StorageError, match="is not there"):
        tp.open("memory://x.npy")
    assert x.shape == source.shape


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("memory://x.zarr", "no Zarr array lies at `memory://x.zarr`"),
        ("memory://x.zarr?sign=s3cret", "Zarr is not read from this address"),
        ("memory://x.duckdb", "a database is not read from an address"),
        ("memory://", "does not know this address"),
        ("unknown://x.npy", "does not know this address"),
        ("http://user:s3cret@127.0.0.1/x.npy", "does not know this address"),
        ("http://127.0.0.1:port/x.npy", "cannot read this address"),
        ("http://127.0.0.1:1/x.npy?sign=s3cret", "`http://127.0.0.1:1/x.npy` does not answer"),
        ("http://127.0.0.1:1/x.zarr?sign=s3cret", "Zarr is not read from this address"),
        ("hdfs://user:s3cret@127.0.0.1:1/x.npy", "`hdfs://127.0.0.1:1/x.npy` "),
    ],
)
def test_addresses_that_cannot_be_read_are_refused_without_what_is_secret(
    place: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tapestry_jax.storage.files.address._PAUSES", (None,))
    with pytest.raises(tp.FormatError) as raised:
        tp.open(place)
    assert told in str(raised.value)
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("x/y@z?a#b", "x/y@z?a#b"),
        ("https://host:80/a/x.npy?sign=s3cret#s3cret", "https://host:80/a/x.npy"),
        ("postgresql://user:s3cret@host/db", "postgresql://host/db"),
        ("postgresql://user:s3cret/s3cret@host/db", "postgresql://host/db"),
        ("postgresql://user:s3cret#s3cret?s3cret@host/db?password=s3cret", "postgresql://host/db"),
        ("postgresql:///db?host=/run&password=s3cret", "postgresql:///db"),
        ("s3://s3cret:s3cret@bucket/x", "s3://bucket/x"),
    ],
)
def test_addresses_are_shown_without_what_is_secret(address: str, shown: str):
    assert shown_address(address) == shown


def test_errors_of_a_store_are_told_by_their_kind_alone(store: Any, monkeypatch: pytest.MonkeyPatch):
    store.pipe("/x.npy", b"\0" * 256)

    def denied(*_: Any, **__: Any) -> Any:
        raise RuntimeError("signature s3cret is not known")

    monkeypatch.setattr(type(store), "cat_file", denied)
    with pytest.raises(tp.StorageError) as raised:
        tp.open("memory://x.npy")
    assert str(raised.value).splitlines() == [
        "`memory://x.npy` does not answer",
        "  RuntimeError of builtins",
        "  Look at the address, and at the settings of its file system.",
    ]
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))
