"""A disk that is really full: a file system of two megabytes in memory, where the machine allows one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tests.tapestry_jax.storage.round_trips import read

X = np.random.default_rng(0).normal(size=(256, 1024)).astype(np.float32)
ROWS = {"row": tp.chunks(size=32)}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip("this machine mounts no file system for tests")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, free: int) -> Path:
    """Leave so many bytes."""
    about, place = os.statvfs(folder), folder / "ballast"
    with contextlib.suppress(OSError), place.open("wb") as file:
        for _ in range((about.f_bavail * about.f_frsize - free) // 4096):
            file.write(b"x" * 4096)
            file.flush()
    return place


def job(tmp_path: Path, sink: Any, checkpoint: Path) -> Any:
    if not (tmp_path / "x.npy").exists():
        np.save(tmp_path / "x.npy", X)
    source = tp.open(tmp_path / "x.npy", names=("row", "col"))
    return tp.stream(lambda x: x + 1, ROWS, [source], sink, checkpoint=checkpoint, save_every=1)


@pytest.mark.parametrize("name", ["y.npy", "y.safetensors", "y.zarr", "y of a fabric"])
def test_a_stream_onto_a_full_disk_is_told_and_goes_on(tmp_path: Path, disk: Path, name: str):
    with contextlib.ExitStack() as stack:
        sink: Callable[[], Any] = lambda: tp.create(disk / name, chunks=(32, 1024))  # noqa: E731
        if name.endswith("fabric"):
            fabric = stack.enter_context(tp.Fabric(disk / "f"))
            sink = lambda: fabric.create("y")  # noqa: E731
        ballast = fill(disk, 600_000)
        with pytest.raises((tp.StorageError, tp.FabricError), match=r"no room|No space left|disk is full") as raised:
            job(tmp_path, sink(), tmp_path / "run").run()
        assert raised.value.args
        ballast.unlink()
        result = job(tmp_path, sink(), tmp_path / "run").run()
        np.testing.assert_array_equal(read(result), X + 1)
        result.close()
        assert not [*disk.glob("*.partial*")]


def test_a_state_that_has_no_room_is_told_and_the_job_goes_on(tmp_path: Path, disk: Path):
    ballast = fill(disk, 8192)
    with pytest.raises(tp.TapestryError, match=r"No space left|no room"):
        job(tmp_path, tp.create(tmp_path / "y.npy"), disk / "run").run()
    ballast.unlink()
    result = job(tmp_path, tp.create(tmp_path / "y.npy"), disk / "run").run()
    np.testing.assert_array_equal(read(result), X + 1)
    result.close()


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors", "x.parquet", "x.arrow", "x.duckdb"])
def test_files_that_have_no_room_are_told_and_leave_nothing(disk: Path, name: str):
    fill(disk, 600_000)
    with pytest.raises(tp.StorageError, match="no room for"):
        save(disk / name, {"x": stored(X)})
    assert [each.name for each in disk.iterdir()] == ["ballast"]


def test_a_fabric_without_room_is_as_it_was_before(disk: Path):
    with tp.Fabric(disk / "f") as fabric:
        fabric.load("a", X[:32])
        ballast = fill(disk, 300_000)
        with pytest.raises(tp.FabricError, match="No space left"):
            fabric.load("b", X)
        fill(disk / "f", 0)
        for change in (
            lambda: fabric.write("a", X[:32] + 1),
            lambda: fabric.copy("a", {0: slice(0, 16)}, "a", {0: slice(16, 32)}),
            lambda: [fabric.allocate(f"z{n}", tp.TensorType({"row": 9})) for n in range(99)],
        ):
            with pytest.raises(tp.FabricError, match=r"No space left|disk is full"):
                change()
        np.testing.assert_array_equal(fabric.read("a"), X[:32])
        assert "b" not in fabric
        ballast.unlink()
        (disk / "f" / "ballast").unlink()
        fabric.write("a", X[:32] + 1)
        np.testing.assert_array_equal(fabric.read("a"), X[:32] + 1)
