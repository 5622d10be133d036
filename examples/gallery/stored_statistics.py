"""One-pass statistics of stored data: the moments of what lies in files.

The program folds shards, which it knows by number. Reading one is a kernel like any other, so a plan says who reads
what, and when: file after file on one device, or every device its own; none holds more than one chunk.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from gallery import Example, Planned, show

import tapestry_jax as tp


def write(shards: int, rows: int, columns: int) -> Path:
    """Files of rows far from zero, where sums of squares would fail."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for number in range(shards):
        rows_of = np.random.default_rng(number).normal(1e3, 1 + number, (rows, columns))
        np.save(folder / f"{number}.npy", rows_of.astype(np.float32))
    return folder


def reader(folder: Path, rows: int, columns: int):
    """The kernel: numbers of shards -> their rows."""

    def load(numbers):
        return np.stack([np.load(folder / f"{int(number)}.npy", mmap_mode="r") for number in numbers])

    def read(numbers):
        return jax.pure_callback(load, jax.ShapeDtypeStruct((*numbers.shape, rows, columns), np.float32), numbers)

    return read


def example(shards: int = 64, rows: int = 16384, columns: int = 8, chunks: int = 8) -> Example:
    read = reader(write(shards, rows, columns), rows, columns)
    stored = tp.Map(read, "shard -> shard [row] [col]", sizes={"row": rows, "col": columns})
    moments = tp.fold(tp.aggregators.Moments(2), "shard row col -> col")

    @tp.program("shard -> col, col")
    def statistics(numbers):
        found = moments(stored(numbers))
        return found["mean"], found["variance"]

    plans = [
        Planned("one-pass statistics", {"shard": tp.chunks(shards)}, {"data": 1}),
        Planned("one-pass statistics on many readers", {"shard": ("data", tp.chunks(chunks))}),
    ]

    def automatic(numbers):
        values = read(numbers).reshape(-1, columns)
        return values.mean(0), values.var(0)

    return Example(statistics, (jnp.arange(shards, dtype=jnp.int32),), plans, automatic)


if __name__ == "__main__":
    show(example)
