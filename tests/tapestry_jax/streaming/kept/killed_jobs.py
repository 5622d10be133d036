"""Jobs that are killed, what they read, and in which chunks they may go on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tapestry_jax as tp
from tapestry_jax.streaming.kept.checkpoint import read_checkpoint
from tests.tapestry_jax.streaming.whole import whole

agg = tp.aggregators
ROWS, COLS = 48, 3


@dataclass(frozen=True)
class Killed:
    """A job, of which `sizes` are the chunks that it may go on in: of sums of floats there is one.

    With `batches` it is run on its first rows alone, and the others come later, in so many. With `halo` its passes take
    so many turns of a repetition.
    """

    program: Any
    dtype: str
    sizes: tuple[int, ...]
    sinks: Mapping[str, str]
    batches: int = 0
    halo: int = 0

    def over(self, size: int) -> dict[str, Any]:
        """The entry of its rows, in chunks of some size."""
        return {"row": (tp.chunks(size=size), *([tp.halo(depth=self.halo)] if self.halo else []))}


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


def reached(x: Any) -> Any:
    """A fold of what a scan gives."""
    running = tp.scan(agg.Sum(), "row c -> row c", over="row")(x)
    return tp.fold(agg.Max() & agg.Last(), "row c -> c")(running), tp.fold(agg.Sum(), "row c -> c")(x)


def repeated(x: Any) -> Any:
    """Five turns that read neighbours, and the largest of what they come to."""
    step = tp.Map(lambda w: (w[:-2] + 2 * w[2:]) % 101, "(row+[k]-1) c -> row c", boundary="edge", sizes={"k": 3})
    y = tp.iterate(step, 5)(x)
    return tp.named("y", y), tp.fold(agg.Max(), "row c -> c")(y)


JOBS = {
    "sums": Killed(sums, "int32", (1, 2, 4, 8), {}),
    "floats": Killed(sums, "float32", (4,), {}),
    "moments": Killed(moments, "float32", (4,), {}),
    "running": Killed(running, "int32", (1, 2, 4, 8), {}),
    "doubled": Killed(doubled, "float32", (1, 2, 4, 8), {"y": "y.npy"}),
    "batches": Killed(moments, "float32", (2,), {}, batches=3),
    "days": Killed(reached, "int32", (2,), {}, batches=2),
    "centred": Killed(centred, "int32", (1, 2, 4), {"y/0": "y.npy"}),
    "repeated": Killed(repeated, "int32", (8, 16), {"y/0": "y.npy"}, halo=2),
}


def source(name: str) -> np.ndarray:
    random = np.random.default_rng(len(name))
    return random.integers(-99, 99, (ROWS, COLS)).astype(JOBS[name].dtype)


@functools.cache
def traced(name: str) -> tp.Graph:
    """The program of a job; in a process that forks others, once for all of them."""
    return tp.trace(JOBS[name].program, tp.TensorType({"row": ROWS, "c": COLS}, JOBS[name].dtype))


PREPARED: dict[tuple[str, int], Any] = {}
"""Jobs by name and size of chunks, planned and compiled (`prepared.py`): others of them read and write elsewhere."""


def anew(job: Any, **changes: Any) -> Any:
    """A job with other sources, sinks or another folder, and with the plan and the programs of a prepared one."""
    found = replace(job, meters=[], reached=[], **changes)
    for name in ("split", "programs"):
        found.__dict__[name] = getattr(job, name)
    return found


def stream(name: str, size: int, folder: Path, every: Any = 2, engine: Any = None, **more: Any) -> Any:
    """The job, over a file in a folder, to which its sinks are written as well."""
    job, prepared = JOBS[name], PREPARED.get((name, size))
    opened = tp.open(days(name, folder)[0])
    if prepared is not None:
        sinks = {number: tp.create(folder / each.path.name) for number, each in prepared.sinks.items()}
        checkpoint = read_checkpoint(folder / "run", every)
        return anew(prepared, sources=(opened,), sinks=sinks, checkpoint=checkpoint, engine=engine)
    made = {output: tp.create(folder / path) for output, path in job.sinks.items()}
    kept = {"checkpoint": folder / "run", "save_every": every} if every is not None else {}
    program = job.program if job.batches else traced(name)
    found = tp.stream(program, job.over(size), (opened,), made or None, **kept, **more)
    return found if engine is None else replace(found, engine=engine)


def days(name: str, folder: Path) -> list[Path]:
    """What a job reads: all rows, or those of each day where they come in batches; written where it is not there."""
    parts = np.array_split(source(name), 1 + JOBS[name].batches)
    paths = [folder / (f"x{day}.npy" if day else "x.npy") for day in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        if not path.exists():
            # In one step: a supervisor that is killed meanwhile would leave half of it.
            partial = path.with_name(f"{path.stem}.partial.npy")
            np.save(partial, part)
            partial.rename(path)
    return paths


def ran(name: str, size: int, folder: Path, every: Any = 2, engine: Any = None) -> Any:
    """The result of the job, in the folder or wherever a process before has left it."""
    job = stream(name, size, folder, every, engine)
    result = job.run()
    for path in days(name, folder)[1:]:
        result = job.extend(tp.open(path))
    return result


def arrays(result: Any) -> list[np.ndarray]:
    """All outputs, those in files too."""
    import jax

    return [whole(leaf) for leaf in jax.tree.leaves(result)]
