"""Between a fabric and files of others: every format that storage knows, and addresses that hold what is secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.moving import files
from tapestry_jax.fabric.moving.files import open_source
from tests.tapestry_jax.storage.round_trips import read

X = np.arange(14, dtype=np.float32).reshape(7, 2)
PLACES = ["x.npy", "x.zarr", "x.safetensors", "x.npz", "x.parquet", "x.arrow", "x.duckdb"]


@pytest.mark.parametrize("place", PLACES)
def test_tensors_are_exported_and_loaded_in_every_format(tmp_path: Path, place: str):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", X)
        fabric.export("x", tmp_path / place)
        np.testing.assert_array_equal(read(tp.open(tmp_path / place)), X)
        with pytest.raises(tp.StorageError, match="is there already"):
            fabric.export("x", tmp_path / place)
        fabric.write("x", X + 1)
        fabric.export("x", tmp_path / place, overwrite=True)
        fabric.load("y", tmp_path / place)
        np.testing.assert_array_equal(fabric.read("y"), X + 1)


def test_exports_of_whole_files_are_under_the_name_of_the_tensor_and_have_no_chunks(tmp_path: Path):
    with tp.Fabric(None) as fabric:
        fabric.load("layer/w", X)
        fabric.export("layer/w", tmp_path / "x.npz")
        np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["layer/w"], X)
        with pytest.raises(tp.FabricError, match="export 'layer/w': this format has no chunks"):
            fabric.export("layer/w", tmp_path / "y.npz", chunks=(2, 2))
        with pytest.raises(tp.FabricError, match="there is no tensor 'z'"):
            fabric.export("z", tmp_path / "y.npz")
        with pytest.raises(tp.FormatError, match="does not know the format"):
            fabric.export("layer/w", tmp_path / "y.unknown")


def test_what_is_remembered_of_an_address_is_not_secret(tmp_path: Path):
    place = tmp_path / "x.npy"
    np.save(place, X)
    found, origin = open_source(str(place), None, None, None)
    found.close()
    assert origin is not None
    assert origin.detail["path"] == str(place)
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
    store, secret = fsspec.filesystem("memory"), "user:s3cret@bucket/x.npy?token=s3cret#s3cret"
    store.pipe(f"/{secret}", place.read_bytes())
    found, origin = open_source(f"memory://{secret}", None, "npy", None)
    found.close()
    store.store.clear()
    assert origin is not None
    assert origin.detail["path"] == "memory://bucket/x.npy"
    assert "s3cret" not in repr(found) + repr(origin)


def test_a_file_that_is_written_while_it_is_loaded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "x.npy"
    np.save(place, X)
    with tp.Fabric(tmp_path / "f") as fabric:

        def read_while_written(found: Any, box: Any) -> Any:
            array = read_box(found, box)
            with place.open("r+b") as file:
                file.seek(-4, 2)
                file.write(np.float32(99).tobytes())
            return array

        read_box = files.read
        monkeypatch.setattr(files, "read", read_while_written)
        with pytest.raises(tp.FabricError, match=r"load 'x': .*x.npy was written while it was read"):
            fabric.load("x", place)
        assert "x" not in fabric and not [*(tmp_path / "f/blocks").glob("*/[0-9]*")]
        monkeypatch.undo()
        fabric.load("x", place)
        assert fabric.read("x")[-1, -1] == 99


def test_what_the_caller_has_opened_stays_open(tmp_path: Path):
    np.save(tmp_path / "x.npy", X)
    source = tp.open(tmp_path / "x.npy")
    with tp.Fabric(None) as fabric:
        for name in ("x", "y"):
            fabric.load(name, source, names=("row", "col"))
            np.testing.assert_array_equal(fabric.read(name), X)


def test_arrays_of_the_other_byte_order_are_written_and_others_are_to_be_converted():
    with tp.Fabric(None) as fabric:
        fabric.load("x", X)
        fabric.write("x", (X + 1).astype(">f4"))
        np.testing.assert_array_equal(fabric.read("x"), X + 1)
        with pytest.raises(tp.FabricError, match=r"Convert it first: array.astype\(dtype\)"):
            fabric.write("x", X.astype(np.float64))


def test_what_it_has_opened_itself_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[Any] = []

    def opens(*told: Any) -> Any:
        opened.append(open_source(*told))
        return opened[-1]

    monkeypatch.setattr(files, "open_source", opens)
    np.save(tmp_path / "x.npy", X)
    with tp.Fabric(None) as fabric:
        fabric.load("x", tmp_path / "x.npy")
    (found, _), *_ = opened
    with pytest.raises(tp.StorageError, match="is closed"):
        found.read(((0, 1), (0, 2)), np.empty((1, 2), np.float32)).result()
