"""Tensors that several write at once to one place, and what lies in a place when one is put there."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tests.tapestry_jax.storage.round_trips import made, numbers, read

X = numbers((8,), np.int32)


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_of_those_that_write_at_once_to_one_place_each_is_whole_or_refused(tmp_path: Path, name: str):
    start, found = threading.Barrier(4), list[object]()

    def write(number: int) -> None:
        for _ in range(10):
            start.wait(30)
            try:
                sink = tp.create(tmp_path / name, chunks=(4,) if name == "x.zarr" else None, overwrite=True).make(
                    (8,), np.int32
                )
                for box in ((0, 4), (4, 8)):
                    sink.write((box,), np.full(4, number, np.int32)).result(30)
                sink.draft.put_in_place()  # pyright: ignore[reportAttributeAccessIssue]
                found.append((number, {*read(tp.open(tmp_path / name)).tolist()}))  # nobody begins anew until it closes
                sink.close()
            except tp.StorageError as error:
                found.append(str(error).startswith("another process writes") or error)
            except BaseException as error:  # noqa: BLE001 - a thread would lose it
                found.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2, 3, 4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    wrong = [each for each in found if each is not True and not (type(each) is tuple and each[1] == {each[0]})]
    assert (len(found), wrong) == (40, [])
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_what_comes_into_a_place_meanwhile_is_not_written_over(tmp_path: Path, name: str):
    place = tmp_path / name
    sink = tp.create(place).make((8,), np.int32)
    sink.write(((0, 8),), X).result()
    made(tmp_path / "other" / name, X + 1).close()
    (tmp_path / "other" / name).rename(place)
    with pytest.raises(tp.StorageError, match=r"(?s)is there already\n.*came while this one was written\n.*partial"):
        sink.finish()
    sink.close()
    assert read(tp.open(place)).tolist() == (X + 1).tolist()
    again = tp.create(place, overwrite=True).again((8,), np.int32)
    assert read(again.finish()).tolist() == X.tolist()


@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.npz"])
def test_a_folder_of_other_things_is_not_written_over(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    (tmp_path / name / "precious").touch()

    def write() -> None:
        if name == "x.npz":
            save(tmp_path / name, {"x": stored(X)}, overwrite=True)
        else:
            tp.create(tmp_path / name, overwrite=True).make((8,), np.int32)

    with pytest.raises(tp.StorageError, match="is a folder that holds no tensor"):
        write()
    assert [path.name for path in tmp_path.rglob("*")] == [name, "precious"]


def test_a_folder_takes_the_place_of_a_file_and_a_file_that_of_a_folder(tmp_path: Path):
    for name, format in (("x.npy", "npy"), ("x.npy", "zarr"), ("x.npy", "npy")):
        sink = tp.create(tmp_path / name, format=format, overwrite=True).make((8,), np.int32)
        sink.write(((0, 8),), X).result()
        assert read(sink.finish()).tolist() == X.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("suffix", ["partial", "partial.filled", "partial.filled.new", "replaced"])
def test_what_lies_beside_a_tensor_while_it_is_written_is_no_place_for_another(tmp_path: Path, suffix: str):
    for begin in (
        lambda: tp.create(tmp_path / f"x.npy.{suffix}", format="zarr", overwrite=True).make((8,), np.int32),
        lambda: save(tmp_path / f"x.npy.{suffix}", {"x": stored(X)}, format="npz"),
    ):
        with pytest.raises(tp.StorageError, match=r"is no name of a tensor\n.*\n.*goes when its tensor is written"):
            begin()
    assert not [*tmp_path.iterdir()]


def test_nothing_is_made_inside_of_what_is_being_written(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "x.zarr.partial")
    for folder in ("x.zarr.partial", "link", "x.zarr.replaced/below"):
        with pytest.raises(
            tp.StorageError, match=r"is no name of a tensor\n.*\n.*got 'x.zarr.\w+': what lies there goes"
        ):
            tp.create(tmp_path / folder / "y.npy").make((8,), np.int32)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_folder_that_comes_into_a_place_meanwhile_stays(tmp_path: Path):
    sink = tp.create(tmp_path / "x.npy", overwrite=True).make((8,), np.int32)
    sink.write(((0, 8),), X).result()
    (tmp_path / "x.npy").mkdir()
    (tmp_path / "x.npy" / "precious").touch()
    with pytest.raises(tp.StorageError, match="is a folder that holds no tensor"):
        sink.finish()
    sink.close()
    assert (tmp_path / "x.npy" / "precious").exists()
    (tmp_path / "x.npy").rename(tmp_path / "aside")
    again = tp.create(tmp_path / "x.npy", overwrite=True).again((8,), np.int32)
    assert read(again.finish()).tolist() == X.tolist()


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_what_somebody_else_has_put_beside_a_place_is_not_moved_into_it(tmp_path: Path, name: str):
    sink = tp.create(tmp_path / name).make((8,), np.int32)
    sink.write(((0, 8),), X).result()
    (tmp_path / f"{name}.partial").rename(tmp_path / "mine")
    made(tmp_path / name, X + 1).close()
    (tmp_path / name).rename(tmp_path / f"{name}.partial")
    with pytest.raises(tp.StorageError, match="somebody else has begun"):
        sink.draft.put_in_place()  # pyright: ignore[reportAttributeAccessIssue]
    sink.close()
    assert not (tmp_path / name).exists()
