"""Checksums of boxes: of any order and shape, found again by another process, and what they see."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from combinators.errors import FormatError
from tapestry_jax.storage.boxes import slices
from tapestry_jax.storage.in_memory import InMemory
from tapestry_jax.storage.protocols import Box
from tapestry_jax.storage.unfinished import sums as module
from tapestry_jax.storage.unfinished.sums import Sums, read_sums

X = np.arange(7 * 5 * 3, dtype=np.int32).reshape(7, 5, 3)


def boxes_of(shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[Box]:
    axes = [[(at, min(at + own, size)) for at in range(0, size, own)] for size, own in zip(shape, sizes, strict=True)]
    return [*itertools.product(*axes)]


def summed(array: np.ndarray, boxes: list[Box]) -> Sums:
    found = Sums(array.shape)
    for box in boxes:
        found.add(box, array[slices(box)])
    return found


def kept(found: Sums, shape: tuple[int, ...]) -> Sums:
    """As another process reads it."""
    return read_sums(*found.to_arrays(), shape, "y.npy")


def again(known: Sums, array: np.ndarray) -> str:
    tensor = InMemory(array, None)
    return known.again(tensor, tensor.read, lambda: None).text


@pytest.mark.parametrize("sizes", [(7, 5, 3), (2, 5, 3), (3, 2, 3), (1, 1, 1), (2, 2, 2), (7, 1, 2)])
@pytest.mark.parametrize("at_once", [4, 40, 4 << 20])
def test_boxes_are_found_again_in_whatever_order_they_came(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], at_once: int
):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    boxes = boxes_of(X.shape, sizes)
    for count in range(len(boxes) + 1):
        order = np.random.default_rng(count).permutation(len(boxes))[:count]
        found = summed(X, [boxes[n] for n in order])
        assert again(kept(found, X.shape), X) == found.text
        assert found.is_empty == (count == 0)


def test_boxes_of_several_sizes_are_found_again():
    boxes = boxes_of((4, 5, 3), (2, 2, 3)) + [((4, 7), *rest) for rest in boxes_of((5, 3), (5, 1))]
    found = kept(summed(X, boxes[:3]), X.shape)
    for box in boxes[3:]:
        found.add(box, X[slices(box)])
    assert again(kept(found, X.shape), X) == found.text == summed(X, boxes).text


def test_what_is_kept_does_not_grow_with_the_boxes():
    array = np.zeros((10_000, 1), np.int8)
    rows, own = summed(array, boxes_of(array.shape, (1, 1))).to_arrays()
    assert rows.tolist() == [[1, 1, 0, 10_000, 0, 1]]
    assert own.nbytes == 32


@pytest.mark.parametrize("boxes", [[()], []])
def test_scalars_have_sums(boxes: list[Box]):
    array = np.array(3.5)
    found = summed(array, boxes)
    assert again(kept(found, ()), array) == found.text
    assert (again(kept(found, ()), np.array(-3.5)) == found.text) == (not boxes)


def test_every_bit_and_every_exchange_is_seen():
    found, size = summed(X, boxes_of(X.shape, (2, 5, 3))), X.nbytes
    for bit in range(0, 8 * size, 7):
        other = X.copy()
        other.view(np.uint8).reshape(-1)[bit // 8] ^= 1 << bit % 8
        assert again(found, other) != found.text
    # Whole boxes in each other's places, and two equal ones: an exclusive or of bytes alone would be 0.
    other = X.copy()
    other[0:2], other[2:4] = X[2:4], X[0:2]
    assert again(found, other) != found.text
    equal = np.ones_like(X)
    assert again(summed(equal, boxes_of(X.shape, (1, 5, 3))), np.zeros_like(X)) != summed(equal, []).text


def test_what_lies_outside_of_the_boxes_is_not_looked_at():
    found, other = summed(X, [((0, 2), (0, 5), (0, 3)), ((4, 6), (0, 5), (0, 3))]), X.copy()
    other[2:4], other[6] = -1, -2
    assert again(found, other) == found.text


@pytest.mark.parametrize(
    ("rows", "own"),
    [
        (np.zeros((1, 8), np.int64), np.zeros(32, np.uint8)),
        (np.zeros((1, 9), np.int32), np.zeros(32, np.uint8)),
        (np.zeros((0, 9), np.int64), np.zeros(31, np.uint8)),
        (np.array([[0, 5, 3, 0, 2, 0, 5, 0, 3]]), np.zeros(32, np.uint8)),
        (np.array([[-1, 5, 3, 0, 2, 0, 5, 0, 3]]), np.zeros(32, np.uint8)),
        (np.array([[3, 5, 3, 0, 4, 0, 5, 0, 3]]), np.zeros(32, np.uint8)),
        (np.array([[2, 5, 3, 0, 8, 0, 5, 0, 3]]), np.zeros(32, np.uint8)),
        (np.array([[2, 5, 3, 4, 2, 0, 5, 0, 3]]), np.zeros(32, np.uint8)),
    ],
)
def test_sums_that_nobody_kept_are_refused(rows: Any, own: Any):
    with pytest.raises(FormatError, match=r"y\.npy"):
        read_sums(rows, own, X.shape, "y.npy")


@pytest.mark.parametrize("name", ["y.npy", "y.zarr", "y.safetensors"])
@pytest.mark.parametrize("dtype", ["int32", "float64", "bool", "complex64"])
def test_what_a_sink_has_written_is_read_back_before_it_is_whole(tmp_path: Path, name: str, dtype: str):
    x = (X % 2).astype(dtype)
    making = tp.create(tmp_path / name)
    sink: Any = making.make(x.shape, x.dtype, None, (2, 5, 3) if name == "y.zarr" else None)
    found = Sums(x.shape)
    sink.filled.watch = found.add
    for box in boxes_of((4, 5, 3), (2, 5, 3)):
        sink.write(box, x[slices(box)]).result()
    sink.flush()
    sink.close()
    sink = making.again(x.shape, x.dtype)
    assert kept(found, x.shape).again(sink, sink.read_back, lambda: None).text == found.text
    sink.write(((2, 4), (0, 5), (0, 3)), 1 - x[2:4] if dtype != "bool" else ~x[2:4]).result()
    assert kept(found, x.shape).again(sink, sink.read_back, lambda: None).text != found.text
    sink.close()
