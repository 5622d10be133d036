"""Files .npz of NumPy: plain members in place, compressed ones whole; what is damaged or no number is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage.files.npz import open_npz
from tapestry_jax.storage.files.ranges import LocalFile
from tests.tapestry_jax.storage.round_trips import SHAPES, boxes, numbers, read


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_numpy_writes_is_read(tmp_path: Path, save: Any, shape: tuple[int, ...]):
    x = numbers(shape)
    save(tmp_path / "x.npz", x=x, y=np.arange(3))
    source = tp.open(tmp_path / "x.npz", "x")
    for box in boxes(shape):
        np.testing.assert_array_equal(read(source, box), x[tuple(slice(*pair) for pair in box)])
    source.close()


def test_an_only_array_needs_no_name(tmp_path: Path):
    np.savez(tmp_path / "x.npz", np.arange(3))
    assert read(open_npz(LocalFile(tmp_path / "x.npz"))).tolist() == [0, 1, 2]
    np.savez(tmp_path / "x.npz", np.arange(3), np.arange(2))
    with pytest.raises(tp.FormatError, match="it holds `arr_0`, `arr_1`"):
        tp.open(tmp_path / "x.npz")


def test_pickles_are_not_read(tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=np.array([{}], dtype=object))
    with pytest.raises(tp.FormatError, match="objects are pickles, which are not read"):
        tp.open(tmp_path / "x.npz", "x")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damage_is_told_as_such(tmp_path: Path, save: Any):
    x = np.arange(100.0)
    save(tmp_path / "x.npz", x=x)
    whole = (tmp_path / "x.npz").read_bytes()
    for cut in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        (tmp_path / "x.npz").write_bytes(whole[:cut])
        with pytest.raises(tp.FormatError, match=r"no file \.npz that can be read"):
            tp.open(tmp_path / "x.npz")
    refused = 0
    for at in range(0, len(whole), max(1, len(whole) // 80)):
        (tmp_path / "x.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = read(tp.open(tmp_path / "x.npz", "x"))
        except tp.FormatError:
            refused += 1
        else:
            # Boxes of plain members are read in place, without their checksum.
            assert save is np.savez or np.array_equal(found, x)
    assert refused > 5


def test_members_that_cannot_be_so_large_are_refused(tmp_path: Path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(10))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (2**31).to_bytes(4, "little")
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(tp.FormatError, match="cannot be so large"):
        tp.open(tmp_path / "x.npz")


def test_encrypted_or_foreign_members_are_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("../x.npy", "no array")
    with pytest.raises(tp.FormatError, match=r"is truncated|is no \.npy file"):
        tp.open(tmp_path / "x.npz")
