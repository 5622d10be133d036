"""Twelve streams of different kinds, for `benchmarks.streams`: what each reads, computes and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from combinators.frozen import dataclass
from tapestry_jax.storage.in_memory import InMemory

ROWS, COLUMNS = 131_072, 256
"""128 MiB of float32: more than any of the limits below."""
CHUNK = 4096
"""Rows of a chunk of Zarr: 4 MiB."""

agg = tp.aggregators


@dataclass(frozen=True)
class Streamed:
    """A stream that is measured.

    Attributes:
      program: an arrow or a program.
      reads: the files that it reads, of those that `write` makes.
      over: entries of the plan, or the name of a dimension, whose chunks then follow from the memory.
      writes: the suffix of the file that the result goes to; None where it is returned.
      memory: the limit, if any.
      devices: how many the rows lie on.
    """

    program: Callable[[], Any]
    reads: tuple[str, ...]
    over: Any
    writes: str | None = None
    memory: str | None = None
    devices: int = 1

    def job(self, folder: Path, rows: int | None = None) -> Any:
        """The job; with `rows` the same program over so many rows in memory, which loads all that is loaded late."""
        given = [_source(folder / name, rows) for name in self.reads]
        if rows is None:
            over, memory = self.over, self.memory
        else:
            axes = ("data",) if self.devices > 1 else ()
            over, memory = {"row": (*axes, tp.chunks(2))}, None
        name = "small" if rows is not None else "made"
        sink = None if self.writes is None else tp.create(folder / f"{name}{self.writes}", overwrite=True)
        mesh = tp.mesh(data=self.devices) if self.devices > 1 else None
        return tp.stream(self.program(), over, given, sink, memory=memory, mesh=mesh)


def _source(path: Path, rows: int | None) -> Any:
    opened = tp.open(path)
    if rows is None:
        return opened
    few = np.empty((rows, *opened.shape[1:]), opened.dtype)
    opened.read(((0, rows), *((0, size) for size in opened.shape[1:])), few).result()
    return InMemory(few, opened.names)


def write(folder: Path) -> None:
    """Write the files that the jobs read."""
    for name in ("x.zarr", "y.zarr", "x.npy", "large.zarr"):
        rows = 32_768 if name == "large.zarr" else CHUNK
        names = ("row", "k" if name == "y.zarr" else "c")
        sink = tp.create(folder / name, chunks=(rows, COLUMNS)).make((ROWS, COLUMNS), np.float32, names, None)
        for start in range(0, ROWS, rows):
            block = np.random.default_rng(start).normal(1.0, 2.0, (rows, COLUMNS)).astype(np.float32)
            sink.write(((start, start + rows), (0, COLUMNS)), block).result()
        sink.finish().close()


def _centred() -> Any:
    @tp.program("row c -> row c")
    def centred(x: Any) -> Any:
        mean = tp.fold(agg.Mean(), "row c -> c")(x)
        return tp.Map(jnp.subtract, "row c, c -> row c")(x, mean)

    return centred


def _moments_and_products() -> Any:
    @tp.program
    def both(x: Any) -> Any:
        return tp.fold(agg.Moments(), "row c -> c")(x), tp.einsum("row c, row k -> c k")(x, x.rename(c="k"))

    return both


def _moments() -> Any:
    return tp.fold(agg.Moments() & agg.MinMax(), "row c -> c")


def _products() -> Any:
    return tp.einsum("row c, row k -> c k")


def _running(*, reverse: bool = False) -> Any:
    return tp.scan(agg.Sum(), "row c -> row c", over="row", reverse=reverse)


def _running_back() -> Any:
    return _running(reverse=True)


def _window() -> Any:
    def smooth(w: Any) -> Any:
        return (w[:-2] + w[1:-1] + w[2:]) / 3

    return tp.Map(smooth, "(row+[k]-1) c -> row c", boundary="reflect", sizes={"k": 3})


def _scaled() -> Any:
    return tp.Map(jnp.tanh, "row c -> row c")


JOBS: Mapping[str, Streamed] = {
    "moments, npy, 16 MiB": Streamed(_moments, ("x.npy",), "row", memory="16MiB"),
    "moments, Zarr, 48 MiB": Streamed(_moments, ("x.zarr",), "row", memory="48MiB"),
    "moments, Zarr, chunks of 32 MiB": Streamed(_moments, ("large.zarr",), {"row": tp.chunks(size=4096)}),
    "moments and X^T X, Zarr, 48 MiB": Streamed(_moments_and_products, ("x.zarr",), "row", memory="48MiB"),
    "X^T Y, two files": Streamed(_products, ("x.zarr", "y.zarr"), {"row": tp.chunks(size=CHUNK)}),
    "X^T Y, npy and Zarr, 64 MiB": Streamed(_products, ("x.npy", "y.zarr"), "row", memory="64MiB"),
    "running sums to npy, 32 MiB": Streamed(_running, ("x.npy",), "row", ".npy", "32MiB"),
    "running sums backwards, Zarr to Zarr": Streamed(
        _running_back, ("x.zarr",), {"row": tp.chunks(size=CHUNK)}, ".zarr"
    ),
    "x - mean(x), Zarr to Zarr, 64 MiB": Streamed(_centred, ("x.zarr",), "row", ".zarr", "64MiB"),
    "a window, Zarr to Zarr": Streamed(_window, ("x.zarr",), {"row": tp.chunks(size=CHUNK)}, ".zarr"),
    "a map of small chunks, npy to Zarr": Streamed(_scaled, ("x.npy",), {"row": tp.chunks(size=256)}, ".zarr"),
    "moments on four devices, Zarr": Streamed(
        _moments, ("x.zarr",), {"row": ("data", tp.chunks(size=1024))}, devices=4
    ),
}
