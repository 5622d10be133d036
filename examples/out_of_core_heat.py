"""Heat on a grid four times larger than the memory that is given: several steps for each pass over its file.

    python examples/out_of_core_heat.py                          # 384 MiB of cells in 96 MiB
    python examples/out_of_core_heat.py --rows 1048576 --passes 8       # 1 GiB

A pass reads rows with a rim of `DEPTH` rows on either side, takes `DEPTH` steps in memory, of which each needs one row
less, and writes what is left: the deep halo of a mesh, read from a file. Beyond the first and the last row the file is
read mirrored, which is what `reflect` means in every one of the steps, since the stencil is symmetric along `y`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tapestry_jax as tp

COLUMNS = 256
DEPTH = 8
"""Steps of a pass, and rows of the rim that it reads on either side."""


def spread(u: Any) -> Any:
    """One explicit step of a cell."""
    return u.here + 0.2 * (u[-1, 0] + u[1, 0] + (u[0, -1] + u[0, 1]) - 4 * u.here)


REACH = {"y": (-1, 1), "x": (-1, 1)}
STEP = tp.stencil(spread, REACH, boundary={"y": "reflect", "x": "zero"})
INSIDE = tp.stencil(spread, REACH, boundary={"y": "valid", "x": "zero"})


def steps(block: Any) -> Any:
    """`DEPTH` steps of rows that lie within a rim of as many."""
    for _ in range(DEPTH):
        block = INSIDE(block)
    return block


def one_pass() -> Any:
    """`DEPTH` steps as one map, whose window along `y` is the deep halo; `x` is whole in every chunk."""
    return tp.Map(steps, f"(y+[dy]-{DEPTH}) [x] -> y [x]", sizes={"dy": 2 * DEPTH + 1}, boundary="reflect")


def begin(path: Path, rows: int, rows_a_chunk: int) -> None:
    """Write random temperatures as Zarr, a chunk after the other."""
    sink = tp.create(path, chunks=(rows_a_chunk, COLUMNS)).make((rows, COLUMNS), np.float32, ("y", "x"))
    for start in range(0, rows, rows_a_chunk):
        stop = min(start + rows_a_chunk, rows)
        block = np.random.default_rng(start).normal(size=(stop - start, COLUMNS)).astype(np.float32)
        sink.write(((start, stop), (0, COLUMNS)), block).result()
    sink.finish().close()


def advance(program: Any, source: Path, target: Path, memory: str, *, shows: bool = False) -> None:
    """One pass: from one Zarr to another."""
    stored = tp.open(source)
    job = tp.stream(program, "y", stored, tp.create(target, overwrite=True), memory=memory)
    if shows:
        print(job.plan())
    job.run().close()
    stored.close()


def whole(path: Path) -> Any:
    """All of a tensor in a file."""
    stored = tp.open(path)
    array = np.empty(stored.shape, stored.dtype)
    stored.read(tuple((0, size) for size in stored.shape), array).result()
    stored.close()
    return array


def main(words: list[str] | None = None) -> tuple[Any, Any]:
    """Stream, and compare with the same steps in memory, by `tp.iterate`."""
    parser = argparse.ArgumentParser(description="Heat on a grid larger than memory.")
    parser.add_argument("--rows", type=int, default=393_216)
    parser.add_argument("--memory", default="96MiB")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--rows-a-chunk", type=int, default=2048)
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        now, then = Path(folder) / "now.zarr", Path(folder) / "then.zarr"
        begin(now, chosen.rows, chosen.rows_a_chunk)
        at_first = whole(now)
        for number in range(chosen.passes):
            advance(one_pass(), now, then, chosen.memory, shows=number == 0)
            shutil.rmtree(now)
            then.rename(now)
        found = whole(now)
    count = chosen.passes * DEPTH
    expected = np.asarray(jax.jit(tp.iterate(STEP, count))(at_first))
    print(f"{count} steps in {chosen.passes} passes, at most {abs(found - expected).max():.1e} from those in memory")
    return found, expected


if __name__ == "__main__":
    main()
