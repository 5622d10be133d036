"""Numbers, boxes, and reading and writing whole tensors, for the tests of storage."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

import tapestry_jax as tp
from tapestry_jax.storage import Sink, Stored
from tapestry_jax.storage.boxes import shape_of, slices, whole

SHAPES = [(), (0,), (7,), (5, 0), (4, 3), (1, 6), (6, 1), (3, 4, 5)]
MADE = {"x.npy": "npy", "x.zarr": "zarr", "x2.zarr": "zarr2"}


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    drawn = np.random.default_rng(0).integers(0, 8, shape)
    return np.asarray(drawn % 2 if np.dtype(dtype) == np.bool_ else drawn).astype(dtype)


def boxes(shape: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
    ends = [sorted({(0, n), (0, n // 2), (n // 2, n), (n // 3, n - n // 3)}) for n in shape]
    return list(itertools.product(*ends))


def read(source: Stored, box: Any = None) -> np.ndarray:
    box = whole(source.shape) if box is None else box
    into = np.full(shape_of(box), 1, source.dtype)
    source.read(box, into).result(timeout=30)
    return into


def write(sink: Sink, array: np.ndarray, rows: int = 2) -> Stored:
    """In boxes of some rows, all under way at once."""
    starts = range(0, array.shape[0], rows) if array.ndim else [0]
    parts = [
        ((start, min(start + rows, len(array))), *whole(array.shape)[1:]) if array.ndim else () for start in starts
    ]
    for done in [sink.write(box, array[slices(box)] if box else array) for box in parts]:
        done.result(timeout=30)
    return sink.finish()


def made(path: Path, array: np.ndarray, format: str | None = None, **options: Any) -> Stored:
    sink = tp.create(path, format=format).make(array.shape, array.dtype, **options)
    return write(sink, array)
