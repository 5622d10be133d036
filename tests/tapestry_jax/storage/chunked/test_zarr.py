"""Zarr of both versions: what zarr-python writes is read, and what is written it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import tapestry_jax as tp
from tapestry_jax.storage.chunked.metadata import default_chunks
from tapestry_jax.storage.errors import WrittenError
from tests.tapestry_jax.storage.round_trips import MADE, made, numbers, read


@pytest.mark.parametrize("name", ["x.zarr", "x2.zarr"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "complex64"])
def test_zarr_python_reads_what_we_write(tmp_path: Path, name: str, dtype: str):
    x = numbers((5, 4), dtype)
    made(tmp_path / name, x, MADE[name], chunks=(2, 3), names=("row", "column")).close()
    theirs: Any = zarr.open_array(tmp_path / name, mode="r")
    np.testing.assert_array_equal(theirs[:], x)
    named = theirs.metadata.dimension_names if name == "x.zarr" else theirs.attrs["_ARRAY_DIMENSIONS"]
    assert tuple(named) == ("row", "column") and theirs.chunks == (2, 3)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["bool", ">i4", "float16", "complex128"])
def test_we_read_what_zarr_python_writes(tmp_path: Path, version: Any, dtype: str):
    x = numbers((5, 4), dtype)
    named: dict[str, Any] = {"dimension_names": ("row", None)} if version == 3 else {}
    theirs: Any = zarr.create_array(
        tmp_path / "x.zarr", shape=x.shape, dtype=x.dtype, chunks=(2, 4), zarr_format=version, **named
    )
    theirs[:4] = x[:4]  # the last chunk is missing, and is filled
    source = tp.open(tmp_path / "x.zarr")
    assert source.chunks == (2, 4) and source.names == (("row", None) if version == 3 else None)
    np.testing.assert_array_equal(read(source), np.concatenate([x[:4], np.zeros((1, 4), x.dtype)]))
    source.close()


@pytest.mark.parametrize(("version", "shards"), [(2, None), (3, None), (3, (4, 4))])
def test_a_chunk_that_lay_there_when_it_was_opened_is_not_filled_in(tmp_path: Path, version: Any, shards: Any):
    place, x = tmp_path / "x.zarr", np.arange(1, 33, dtype=np.int32).reshape(8, 4)
    given: dict[str, Any] = {"shards": shards} if shards else {"compressors": None}
    theirs: Any = zarr.create_array(place, shape=x.shape, dtype=x.dtype, chunks=(2, 4), zarr_format=version, **given)
    theirs[:4] = x[:4]
    source, whole = tp.open(place), np.concatenate([x[:4], np.zeros_like(x[4:])])
    np.testing.assert_array_equal(read(source), whole)  # what nobody had written has the fill value
    lost = place / ("c/0/0" if version == 3 else "0.0")
    lost.unlink()
    for box in (((0, 8), (0, 4)), ((0, 1), (1, 2))):
        with pytest.raises(WrittenError, match=rf"the chunk `{lost.relative_to(place)}` lay there then, and is gone"):
            source.read(box, np.empty([stop - start for start, stop in box], x.dtype)).result()
    rest = np.empty((4, 4), x.dtype)
    source.read(((4, 8), (0, 4)), rest).result()
    assert not rest.any() and not read(tp.open(place))[0].any()
    theirs[:] = x  # others write on, what was missing too
    np.testing.assert_array_equal(read(source), x)
    source.close()


def test_chunks_in_a_folder_that_a_link_leads_to_are_seen(tmp_path: Path):
    place = tmp_path / "x.zarr"
    theirs: Any = zarr.create_array(place, shape=(4,), dtype="i4", chunks=(2,))
    theirs[:] = [1, 2, 3, 4]
    (place / "c").rename(tmp_path / "elsewhere")
    (place / "c").symlink_to(tmp_path / "elsewhere")
    (place / "round").symlink_to(place)
    source = tp.open(place)
    before = source.fingerprint()
    theirs[:2] = [5, 6]
    assert source.fingerprint() != before
    (tmp_path / "elsewhere" / "1").unlink()
    with pytest.raises(WrittenError, match="the chunk `c/1` lay there"):
        read(source)
    source.close()


def test_names_of_xarray_are_read_from_zarr_2(tmp_path: Path):
    theirs: Any = zarr.create_array(tmp_path / "x.zarr", shape=(2, 3), dtype="i4", zarr_format=2)
    theirs.attrs["_ARRAY_DIMENSIONS"] = ["row", "column"]
    assert tp.open(tmp_path / "x.zarr").names == ("row", "column")


def test_an_array_of_a_zarr_group_is_opened_by_name(tmp_path: Path):
    theirs: Any = zarr.open_group(tmp_path / "g.zarr", mode="w")
    theirs.create_array("inner/x", shape=(2,), dtype="f4")[:] = [1, 2]
    assert read(tp.open(tmp_path / "g.zarr", "inner/x")).tolist() == [1, 2]
    with pytest.raises(tp.FormatError, match="is a Zarr group, not an array"):
        tp.open(tmp_path / "g.zarr")


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((), ()), ((0, 5), (1, 5)), ((10**7, 512), (8192, 512)), ((3, 10**9), (1, 4 * 2**20)), ((7, 9), (7, 9))],
)
def test_default_chunks_are_rows_of_16_mib(shape: tuple[int, ...], chunks: tuple[int, ...]):
    assert default_chunks(shape, np.dtype(np.float32)) == chunks


@pytest.mark.parametrize("name", ["x.zarr", "x2.zarr"])
def test_going_on_refuses_other_names_and_arrays_of_others(tmp_path: Path, name: str):
    creation = tp.create(tmp_path / name, format=MADE[name])
    creation.make((4, 3), np.float32, ("row", None)).close()
    creation.again((4, 3), np.float32, ("row", None)).close()
    for names in (("row", "column"), (None, "row"), None):
        with pytest.raises(tp.FormatError, match="is not what was begun"):
            creation.again((4, 3), np.float32, names)
    version: Any = 3 if name == "x.zarr" else 2
    zarr.create_array(tmp_path / f"other{name}", shape=(4,), chunks=(4,), dtype="f4", zarr_format=version)
    with pytest.raises(tp.FormatError, match="is not what was begun"):
        tp.create(tmp_path / f"other{name}", format=MADE[name]).again((4,), np.float32)


def test_a_place_may_lead_through_the_folder_above_and_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "inner" / "deep")
    monkeypatch.chdir(tmp_path / "inner")
    for number, place in enumerate(("../y.zarr", "../link/../z.zarr")):
        sink = tp.create(place).make((4, 2), np.int32)
        sink.write(((0, 4), (0, 2)), np.full((4, 2), number, np.int32)).result()
        sink.finish().close()
        opened = tp.open(place)
        assert (read(opened) == number).all()
        opened.close()
    # The folder above the target of the link, as the system has it.
    assert (tmp_path / "y.zarr").exists() and (tmp_path / "inner" / "z.zarr").exists()
