"""Grids four times larger than the memory that is given: several steps for each pass over their files.

    python examples/out_of_core_heat.py                          # heat: 384 MiB of cells in 96 MiB
    python examples/out_of_core_heat.py --system reaction        # two fields that react, 768 MiB in 192 MiB
    python examples/out_of_core_heat.py --rows 1048576 --steps 64       # 1 GiB

The program is the one that runs in memory, `tp.iterate(step, n)`. `tp.halo(depth=8)` beside chunks lets a pass read
rows with a rim of eight on either side, take eight steps, of which each needs one row less, and write what is left: the
deep halo of a mesh, read from a file. Between two passes the grid lies in the folder of the job, where it goes on from
if it is killed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tapestry_jax as tp

COLUMNS = 256
DEPTH = 8
"""Steps of a pass, and rows of the rim that it reads on either side."""


def spread(u: Any) -> Any:
    """What flows into a cell from its neighbours."""
    return u[-1, 0] + u[1, 0] + (u[0, -1] + u[0, 1]) - 4 * u.here


def heat(u: Any) -> Any:
    """One explicit step of a cell."""
    return u.here + 0.2 * spread(u)


def reaction(u: Any, v: Any) -> tuple[Any, Any]:
    """One explicit step of two fields, of which the one feeds the other (Gray and Scott)."""
    made = u.here * v.here**2
    return (
        u.here + 0.16 * spread(u) - made + 0.035 * (1 - u.here),
        v.here + 0.08 * spread(v) + made - 0.1 * v.here,
    )


REACH = {"y": (-1, 1), "x": (-1, 1)}
SYSTEMS = {
    "heat": (tp.stencil(heat, REACH, boundary={"y": "edge", "x": "zero"}), 1),
    "reaction": (tp.stencil(reaction, REACH, boundary={"y": "reflect", "x": "periodic"}), 2),
}
"""One step, and how many fields it has."""


def begin(path: Path, rows: int, rows_a_chunk: int, seed: int) -> None:
    """Write a random field, a chunk after the other."""
    chunks = (rows_a_chunk, COLUMNS) if path.suffix == ".zarr" else None
    sink = tp.create(path, chunks=chunks).make((rows, COLUMNS), np.float32)
    for start in range(0, rows, rows_a_chunk):
        stop = min(start + rows_a_chunk, rows)
        block = np.random.default_rng((seed, start)).uniform(size=(stop - start, COLUMNS)).astype(np.float32)
        sink.write(((start, stop), (0, COLUMNS)), block).result()
    sink.finish().close()


def march(step: Any, steps: int, sources: Sequence[Path], folder: Path, memory: str, rows: int | None) -> list[Any]:
    """Take all steps, from files to files, `rows` at a time or as many as the memory allows."""
    fields = [tp.open(path, names=("y", "x")) for path in sources]
    graph = tp.trace(tp.iterate(step, steps), *fields)
    places = [path.with_stem(f"later-{number}") for number, path in enumerate(sources)]
    sinks = {name: tp.create(path) for (name, _), path in zip(graph.outputs, places, strict=True)}
    halo = tp.halo(depth=min(DEPTH, steps))
    over = {"y": halo if rows is None else (tp.chunks(size=rows), halo)}
    job = tp.stream(graph, over, fields, sinks, memory=memory, checkpoint=folder / "run")
    print(job.plan())
    made = jax.tree.leaves(job.run(), is_leaf=lambda each: hasattr(each, "read"))
    print(f"{steps} steps in {len(job.split.passes)} passes")
    return made


def whole(stored: Any) -> Any:
    """All of a tensor in a file."""
    array = np.empty(stored.shape, stored.dtype)
    stored.read(tuple((0, size) for size in stored.shape), array).result()
    stored.close()
    return array


def main(words: list[str] | None = None) -> tuple[list[Any], list[Any]]:
    """Stream, and compare with the same program in memory."""
    parser = argparse.ArgumentParser(description="Grids larger than memory.")
    parser.add_argument("--system", choices=SYSTEMS, default="heat")
    parser.add_argument("--rows", type=int, default=393_216)
    parser.add_argument("--memory", default=None, help="by default 96 MiB for each field")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows-a-chunk", type=int, default=2048)
    parser.add_argument("--rows-a-turn", type=int, default=None, help="by default as many as fit")
    parser.add_argument("--format", choices=("zarr", "npy"), default="zarr")
    chosen = parser.parse_args(words)
    step, fields = SYSTEMS[chosen.system]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = [folder / f"now-{number}.{chosen.format}" for number in range(fields)]
        for number, path in enumerate(sources):
            begin(path, chosen.rows, chosen.rows_a_chunk, number)
        memory = chosen.memory or f"{96 * fields}MiB"
        made = march(step, chosen.steps, sources, folder, memory, chosen.rows_a_turn)
        found, at_first = list(map(whole, made)), [whole(tp.open(path)) for path in sources]
    expected = list(map(np.asarray, jax.tree.leaves(jax.jit(tp.iterate(step, chosen.steps))(*at_first))))
    furthest = max(float(abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    print(f"at most {furthest:.1e} from the same program in memory")
    return found, expected


if __name__ == "__main__":
    main()
