"""What was opened and has been written since: nobody takes the numbers of the one for those of the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tapestry_jax.storage.errors import WrittenError
from tapestry_jax.storage.files.ranges import LocalFile
from tapestry_jax.storage.formats import FORMATS
from tests.tapestry_jax.storage.round_trips import made, read

X = np.arange(6, dtype=np.int32)
Write = Callable[[Path, Any], None]
SAVED = ("npz", "parquet", "arrow", "duckdb")
WRITE: dict[str, Write] = {
    **{name: lambda path, x: save(path, {"x": stored(x)}) for name in SAVED},
    "npz, compressed": lambda path, x: np.savez_compressed(path, x=x),
    "npy": lambda path, x: np.save(path, x),
    "safetensors": lambda path, x: made(path, x).close(),
    "zarr": lambda path, x: made(path, x, chunks=(2,)).close(),
    "zarr2": lambda path, x: made(path, x, "zarr2", chunks=(2,)).close(),
}
"""By formats, and ways in which they lie in files."""


def suffix(name: str) -> str:
    return FORMATS[name.partition(",")[0]].suffixes[0] if name != "zarr2" else ".zarr"


def test_all_formats_of_files_are_here():
    assert {name.partition(",")[0] for name in WRITE} == {*FORMATS} - {"icechunk"}  # an open snapshot stays as it is


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", WRITE)
def test_a_tensor_in_whose_place_lies_another_has_no_fingerprint(tmp_path: Path, name: str, in_place: bool):
    path, other = tmp_path / f"x{suffix(name)}", tmp_path / f"other{suffix(name)}"
    WRITE[name](path, X)
    WRITE[name](other, X.astype(np.float32))  # as many bytes, which are other numbers
    source = tp.open(path)
    assert source.fingerprint() == tp.open(path).fingerprint()
    if other.is_dir():
        shutil.rmtree(path)
        shutil.copytree(other, path)
    elif in_place:
        path.write_bytes(other.read_bytes())
    else:
        other.replace(path)
    with pytest.raises(WrittenError, match=r"x[.].* was written since it was opened\n  Open it again"):
        source.fingerprint()


@pytest.mark.parametrize("name", ["npy", "npz", "safetensors", "zarr"])
def test_numbers_that_are_written_in_their_place_are_read(tmp_path: Path, name: str):
    path, other = tmp_path / f"x{suffix(name)}", tmp_path / "y" / f"x{suffix(name)}"
    WRITE[name](path, X)
    source = tp.open(path)
    before, _ = source.fingerprint(), other.parent.mkdir()
    WRITE[name](other, X + 1)
    files = [(path / each.relative_to(other), each) for each in other.rglob("*") if each.is_file()] or [(path, other)]
    for file, new in files:
        file.write_bytes(new.read_bytes())
    assert source.fingerprint() != before
    np.testing.assert_array_equal(read(source), X + 1)


def test_a_header_that_is_written_while_a_file_is_opened_is_not_taken_for_the_one_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, rests_on = tmp_path / "x.npy", LocalFile.rests_on
    np.save(place, np.arange(6, dtype=np.int32).reshape(2, 3))
    os.utime(place, (0, 0))

    def late(file: LocalFile, begin: int, stop: int) -> None:
        with place.open("r+b") as other:
            other.write(place.read_bytes().replace(b"(2, 3)", b"(3, 2)"))
        rests_on(file, begin, stop)

    monkeypatch.setattr(LocalFile, "rests_on", late)
    source = tp.open(place)
    with pytest.raises(WrittenError):
        source.fingerprint()
    source.close()
