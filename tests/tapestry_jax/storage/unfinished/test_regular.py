"""Pipes, sockets, devices and folders in the places of files are told: nobody waits for them, or writes to them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage.unfinished.regular import check_file, open_regular

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ROWS = ((0, 2), (0, 3))


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def handles() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


KINDS = (os.mkfifo, a_socket, a_device, Path.mkdir)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY])
def test_what_is_no_file_is_not_opened(tmp_path: Path, make: Callable[[Path], None], flags: int):
    make(tmp_path / "x")
    before = handles()
    with pytest.raises((tp.StorageError, OSError), match=r"is no file|No such device|Is a directory"):
        open_regular(tmp_path / "x", flags)
    assert handles() == before
    with pytest.raises(tp.StorageError, match=r"`.*x` is no file\n  Look at what lies there, and put the file back."):
        check_file(tmp_path / "x")


def test_files_are_opened_and_what_is_not_there_is_no_matter(tmp_path: Path):
    check_file(tmp_path / "x")
    with open(open_regular(tmp_path / "x", os.O_RDWR | os.O_CREAT, 0o600), "w") as file:  # noqa: PTH123, a handle
        file.write("12")
    check_file(tmp_path / "x")
    with open(open_regular(tmp_path / "x")) as file:  # noqa: PTH123, a handle
        assert file.read() == "12"


def begun(place: Path) -> tp.Creation:
    """A tensor of which the first half is written."""
    version = "zarr2" if place.suffix == ".zarr2" else None
    made = tp.create(place, chunks=(2, 3) if "zarr" in place.suffix else None, format=version)
    sink = made.make(X.shape, X.dtype)
    sink.write(ROWS, X[:2]).result()
    sink.flush()
    sink.close()
    return made


def go_on(made: tp.Creation) -> None:
    again: Any = made.again(X.shape, X.dtype)
    try:
        again.write(((0, 1), (0, 3)), X[:1]).result()
        again.read_back(ROWS, np.empty((2, 3), X.dtype)).result()
    finally:
        again.close()


LEFT = [
    ("x.npy", "x.npy.partial"),
    ("x.npy", "x.npy.partial.filled"),
    ("x.safetensors", "x.safetensors.partial"),
    ("x.safetensors", "x.safetensors.partial.filled"),
    ("x.zarr", "x.zarr.partial/c/0/0"),
    ("x.zarr", "x.zarr.partial/zarr.json"),
    ("x.zarr", "x.zarr.partial.filled"),
    ("x.zarr2", "x.zarr2.partial/0.0"),
    ("x.zarr2", "x.zarr2.partial/.zarray"),
    ("x.zarr2", "x.zarr2.partial/.zattrs"),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(("name", "inside"), LEFT)
def test_what_was_begun_is_not_gone_on_with_in_something_else(
    tmp_path: Path, name: str, inside: str, make: Callable[[Path], None]
):
    made = begun(tmp_path / name)
    (tmp_path / inside).unlink()
    make(tmp_path / inside)
    with pytest.raises(tp.FormatError, match=r"is no file|No such device|Is a directory|is not what was begun|no Zarr"):
        go_on(made)


@pytest.mark.parametrize("ending", ["", ".__lock"])
@pytest.mark.parametrize("name", ["x.zarr", "x.zarr2"])
def test_nothing_is_written_into_a_pipe_in_the_place_of_a_chunk(tmp_path: Path, name: str, ending: str):
    made = begun(tmp_path / name)
    other = tmp_path / f"{name}.partial" / f"{'c/1/0' if name == 'x.zarr' else '1.0'}{ending}"
    other.parent.mkdir(exist_ok=True)
    os.mkfifo(other)
    sink = made.again(X.shape, X.dtype)
    with pytest.raises(tp.StorageError, match="is no file"):
        sink.write(((2, 4), (0, 3)), X[2:]).result()
    sink.close()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.with_name("mine")), Path.mkdir])
def test_what_is_written_beside_a_tensor_takes_the_place_of_what_lies_there(
    tmp_path: Path, make: Callable[[Path], None]
):
    (tmp_path / "mine").write_text("mine")
    make(tmp_path / "x.npy.partial.filled.new")
    begun(tmp_path / "x.npy")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "x.npy.partial.filled").is_file()
