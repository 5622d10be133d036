"""Sinks with holes are not finished: which cells were written is known, in one process and in the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage.boxes import slices, whole
from tapestry_jax.storage.unfinished.filled import Filled, first_hole, merged, read_filled
from tests.tapestry_jax.storage.round_trips import read

PLACES = ["x.npy", "x.safetensors", "x.zarr"]


@pytest.mark.parametrize("shape", [(12,), (6, 5), (4, 3, 5)])
def test_holes_are_those_of_a_mask(shape: tuple[int, ...]):
    random, found = np.random.default_rng(3), [0, 0]
    for _ in range(120):
        mask, filled = np.zeros(shape, bool), Filled(shape)
        for _ in range(random.integers(1, 24)):
            ends = [sorted(random.integers(0, size + 1, 2).tolist()) for size in shape]
            box = tuple(
                (0, size) if random.random() < 0.4 else (a, b) for (a, b), size in zip(ends, shape, strict=True)
            )
            filled.add(box)
            mask[slices(box)] = True
        boxes = filled.boxes()
        again = np.zeros(shape, bool)
        for box in boxes:
            again[slices(box)] = True
        np.testing.assert_array_equal(again, mask)
        assert read_filled(filled.to_json(), shape, "x").boxes() == boxes
        hole = first_hole(whole(shape), boxes)
        found[hole is None] += 1
        assert (hole is None) == mask.all()
        assert hole is None or (not mask[slices(hole)].any() and mask[slices(hole)].size)
    assert min(found) > 4


def test_boxes_that_follow_each_other_become_one():
    grid = [((a, a + 2), (b, b + 3), (c, c + 1)) for a in range(0, 20, 2) for b in range(0, 30, 3) for c in range(9)]
    np.random.default_rng(0).shuffle(grid)
    boxes = [tuple((int(a), int(b)) for a, b in box) for box in grid]
    assert merged(boxes) == [((0, 20), (0, 30), (0, 9))]
    filled = Filled((10_000,))
    for start in range(0, 10_000, 2):
        filled.add(((start, start + 1),))
    assert len(filled.boxes()) == 5_000


@pytest.mark.parametrize("name", PLACES)
def test_a_sink_with_holes_is_not_finished(tmp_path: Path, name: str):
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    sink = tp.create(tmp_path / name, chunks=(4, 3)).make(x.shape, x.dtype)
    sink.write(((0, 3), (0, 3)), x[:3]).result()
    # A part of a chunk: its file is there.
    sink.write(((3, 8), (0, 2)), np.ascontiguousarray(x[3:, :2])).result()
    with pytest.raises(tp.StorageError) as raised:
        sink.finish()
    assert str(raised.value).splitlines() == [
        f"`{tmp_path / name}` has cells that nobody has written",
        "  the first are those of the box [3:8, 2:3]",
        "  Write all boxes before finish(); close() leaves it to Creation.again.",
    ]
    assert not (tmp_path / name).exists()
    sink.write(((0, 8), (2, 3)), np.ascontiguousarray(x[:, 2:])).result()
    np.testing.assert_array_equal(read(sink.finish()), x)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", PLACES)
def test_what_was_flushed_is_known_to_the_next_process(tmp_path: Path, name: str):
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    creation = tp.create(tmp_path / name, chunks=(2, 3))
    sink = creation.make(x.shape, x.dtype)
    sink.write(((0, 4), (0, 3)), x[:4]).result()
    sink.flush()
    sink.write(((4, 6), (0, 3)), x[4:6]).result()
    sink.close()  # as a kill would: what was not flushed is not known to be there
    sink = creation.again(x.shape, x.dtype)
    sink.write(((6, 8), (0, 3)), x[6:]).result()
    with pytest.raises(tp.StorageError, match=r"\[4:6, 0:3\]"):
        sink.finish()
    sink.write(((4, 6), (0, 3)), x[4:6]).result()
    sink.finish().close()
    # Of a tensor in its place all cells are written.
    done = creation.again(x.shape, x.dtype)
    done.write(((0, 1), (0, 3)), x[:1] + 1).result()
    np.testing.assert_array_equal(read(done.finish())[1:], x[1:])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    # One that is begun anew knows nothing of the one before.
    sink = tp.create(tmp_path / name, chunks=(2, 3), overwrite=True).make(x.shape, x.dtype)
    with pytest.raises(tp.StorageError, match=r"\[0:8, 0:3\]"):
        sink.finish()
    sink.close()


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, "[[[0, 9]]]", '[["a", 1]]', "[[[3, 1]]]", "[[0]]", "\udcff"])
def test_what_is_no_list_of_boxes_is_refused(tmp_path: Path, text: str):
    creation = tp.create(tmp_path / "x.npy")
    sink = creation.make((4,), np.int32)
    sink.flush()
    sink.close()
    (tmp_path / "x.npy.partial.filled").write_text(text, errors="surrogateescape")
    with pytest.raises(tp.FormatError):
        creation.again((4,), np.int32)


def test_a_bit_that_flips_in_what_is_known_of_cells_is_told(tmp_path: Path):
    creation = tp.create(tmp_path / "x.npy")
    sink = creation.make((64,), np.int32)
    sink.write(((0, 16),), np.ones(16, np.int32)).result()
    sink.flush()
    sink.close()
    file = tmp_path / "x.npy.partial.filled"
    before = file.read_bytes()
    for at in range(len(before)):
        for bit in range(8):
            data = bytearray(before)
            data[at] ^= 1 << bit
            file.write_bytes(data)
            try:
                sink = creation.again((64,), np.int32)
            except tp.FormatError:
                continue
            assert sink.filled.boxes() == [((0, 16),)]
            sink.close()


def test_tensors_without_cells_have_no_holes(tmp_path: Path):
    for name in PLACES:
        tp.create(tmp_path / name).make((0, 3), np.int32).finish().close()
        scalar = tp.create(tmp_path / f"s{name}").make((), np.int32)
        with pytest.raises(tp.StorageError, match="nobody has written"):
            scalar.finish()
        scalar.write((), np.asarray(7, np.int32)).result()
        assert read(scalar.finish()) == 7
