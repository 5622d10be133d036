"""Jobs that are killed, what they read, and in which chunks they may go on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tapestry_jax as tp
from tests.tapestry_jax.streaming.whole import whole

agg = tp.aggregators
ROWS, COLS = 48, 3


@dataclass(frozen=True)
class Killed:
    """A job, of which `sizes` are the chunks that it may go on in: of sums of floats there is one.

    With `batches` it is run on its first rows alone, and the others come later, in so many.
    """

    program: Any
    dtype: str
    sizes: tuple[int, ...]
    sinks: Mapping[str, str]
    batches: int = 0


def sums(x: Any) -> Any:
    return tp.fold(agg.Sum() & agg.Max() & agg.First(), "row c -> c")(x)


def moments(x: Any) -> Any:
    return tp.fold(agg.Moments(), "row c -> c")(x)


def running(x: Any) -> Any:
    return tp.scan(agg.Sum(), "row c -> row c", over="row", reverse=True)(x)


def doubled(x: Any) -> Any:
    return tp.named("y", tp.Map(lambda a: a * 2 + 1)(x))


def centred(x: Any) -> Any:
    """Three passes: a scan that is spilled, its largest, and what is left of it; and a sum of what was read."""
    y = tp.scan(agg.Sum(), "row c -> row c", over="row")(x)
    most = tp.fold(agg.Max(), "row c -> c")(y)
    return tp.named("y", tp.Map(lambda a, b: a - b, "row c, c -> row c")(y, most)), tp.fold(agg.Sum(), "row c -> c")(x)


JOBS = {
    "sums": Killed(sums, "int32", (1, 2, 4, 8), {}),
    "moments": Killed(moments, "float32", (4,), {}),
    "running": Killed(running, "int32", (1, 2, 4, 8), {}),
    "doubled": Killed(doubled, "float32", (1, 2, 4, 8), {"y": "y.npy"}),
    "batches": Killed(moments, "float32", (2,), {}, batches=3),
    "centred": Killed(centred, "int32", (1, 2, 4), {"y/0": "y.npy"}),
}


def source(name: str) -> np.ndarray:
    random = np.random.default_rng(len(name))
    return random.integers(-99, 99, (ROWS, COLS)).astype(JOBS[name].dtype)


@functools.cache
def traced(name: str) -> tp.Graph:
    """The program of a job; in a process that forks others, once for all of them."""
    return tp.trace(JOBS[name].program, tp.TensorType({"row": ROWS, "c": COLS}, JOBS[name].dtype))


def stream(name: str, size: int, folder: Path, every: Any = 2, **more: Any) -> Any:
    """The job, over a file in a folder, to which its sinks are written as well."""
    job = JOBS[name]
    if not (folder / "x.npy").exists():
        np.save(folder / "x.npy", source(name))
    graph = traced(name)
    made = {output: tp.create(folder / path) for output, path in job.sinks.items()}
    kept = {"checkpoint": folder / "run", "save_every": every} if every is not None else {}
    return tp.stream(graph, {"row": tp.chunks(size=size)}, (tp.open(folder / "x.npy"),), made or None, **kept, **more)


def ran(name: str, size: int, folder: Path, every: Any = 2) -> Any:
    """The result of the job, in the folder or wherever a process before has left it."""
    job = JOBS[name]
    if not job.batches:
        return stream(name, size, folder, every).run()
    parts = np.array_split(source(name), 1 + job.batches)
    kept = {"checkpoint": folder / "run", "save_every": every} if every is not None else {}
    whole = tp.stream(job.program, {"row": tp.chunks(size=size)}, parts[0], **kept)
    result = whole.run()
    for number, part in enumerate(parts[1:]):
        result = whole.extend(part, batch=f"{number}" if kept else None)
    return result


def arrays(result: Any) -> list[np.ndarray]:
    """All outputs, those in files too."""
    import jax

    return [whole(leaf) for leaf in jax.tree.leaves(result)]
