"""Several tensors as one, and folds of each of them: streams of streams."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import joined, numbers, stored
from tests.thoroughly import but

agg = tp.aggregators
LENGTHS = (5, 0, 1, 13, 2)


def arrays(dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.integers(-9, 9, (length, 3)).astype(dtype) for length in LENGTHS]


@pytest.fixture
def files(tmp_path: Path) -> list[Any]:
    """Files of several formats and numbers of rows."""
    found: list[Any] = []
    for number, array in enumerate(arrays()):
        path = tmp_path / f"{number}.{('npy', 'zarr')[number % 2]}"
        if number % 2:
            sink = tp.create(path, chunks=(4, 3)).make(array.shape, array.dtype)
            if array.size:
                sink.write(((0, len(array)), (0, 3)), array).result()
            sink.finish().close()
        else:
            np.save(path, array)
        found.append(tp.open(path))
    return found


def test_every_box_of_joined_tensors_is_that_of_the_whole(files: list[Any]) -> None:
    rows, whole = joined(files), np.concatenate(arrays())
    which = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    for start in range(len(whole) + 1):
        for stop in range(start, len(whole) + 1):
            into, number = np.empty((stop - start, 2), np.float32), np.empty(stop - start, np.int32)
            rows.read(((start, stop), (1, 3)), into).result()
            numbers(rows).read(((start, stop),), number).result()
            assert (into == whole[start:stop, 1:]).all() and (number == which[start:stop]).all()
    again = pickle.loads(pickle.dumps(rows))
    again.read(((0, 21), (0, 3)), into := np.empty((21, 3), np.float32)).result()
    assert (into == whole).all() and again.fingerprint() == rows.fingerprint()
    again.close()
    rows.close()


@pytest.mark.parametrize("size", but([1, 4, 21], 1, 21))
def test_a_fold_of_each_file_is_one_pass_over_all(files: list[Any], size: int) -> None:
    rows = joined(files)
    each = (agg.Sum() & agg.Max() & agg.Mean()).by_segment(None, len(files))
    fold = tp.fold(each, "row c, row -> c")
    (sums, largest), means = tp.stream(fold, {"row": tp.chunks(size=size)}, (rows, numbers(rows))).run()
    for number, array in enumerate(arrays()):
        np.testing.assert_array_equal(sums[:, number], array.sum(0))
        if len(array):
            np.testing.assert_array_equal(largest[:, number], array.max(0))
            np.testing.assert_allclose(means[:, number], array.mean(0), rtol=1e-6)


def test_a_fold_of_each_file_goes_to_a_sink_and_to_a_mesh(files: list[Any], tmp_path: Path) -> None:
    rows = joined(files)
    fold = tp.fold(agg.Sum().by_segment(None, len(files)), "row c, row -> c")
    over, mesh = {"row": ("data", tp.chunks(size=3))}, tp.mesh(data=2)
    tp.stream(fold, over, (rows, numbers(rows)), tp.create(tmp_path / "y.npy"), mesh=mesh).run().close()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").T, [array.sum(0) for array in arrays()])


def test_joined_tensors_change_with_each_of_them(files: list[Any], tmp_path: Path) -> None:
    before = joined(files).fingerprint()
    np.save(tmp_path / "2.npy", arrays()[2] + 1)
    assert joined([*files[:2], tp.open(tmp_path / "2.npy"), *files[3:]]).fingerprint() != before
    parts = [stored(array) for array in arrays()]
    assert joined(parts).fingerprint() != joined([*parts[:3], parts[4], parts[3]]).fingerprint()
    total, seen = tp.fold(agg.Sum(), "row c -> c"), list[int]()
    for each in (files, files, files[:4]):
        job = tp.stream(total, {"row": tp.chunks(size=4)}, joined(each), cache=tmp_path / "cache")
        np.testing.assert_array_equal(job.run(), np.concatenate([read(one) for one in each]).sum(0))
        seen.append(job.metrics.stage("read").bytes)
    assert seen == [252, 0, 228]


def read(one: Any) -> Any:
    into = np.empty(one.shape, one.dtype)
    one.read(tuple((0, size) for size in one.shape), into).result()
    return into


def test_what_is_not_joined_is_refused() -> None:
    x = stored(np.ones((2, 3), np.float32))
    for wrong in ([], x, ["x.npy"], [x, np.ones((2, 3))]):
        with pytest.raises(tp.FormatError, match=r"joined takes what tp.open gives, one or more"):
            joined(wrong)
    for other in (np.ones((2, 4), np.float32), np.ones((2, 3), np.int32), np.ones((), np.float32)):
        with pytest.raises(tp.FormatError, match="tensors of other types are not joined"):
            joined([x, stored(other)])
    with pytest.raises(tp.FormatError, match="numbers takes what joined gave"):
        numbers(x)
    assert jax.tree.leaves(joined([x]).lengths) == [2]
