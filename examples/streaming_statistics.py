"""Column means, variances and X^T X of an array larger than the memory that is given, in one pass over its file.

    python examples/streaming_statistics.py                 # 256 MiB of rows, in 64 MiB
    python examples/streaming_statistics.py --rows 1966080  # 4 GB

The program is that of arrays in memory. The stream turns its loop over `row` on the host: chunks are read from Zarr
while the ones before are computed, and what is folded stays on the device. `print(job.plan())` shows the memory before
anything runs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tapestry_jax as tp

COLUMNS = 512
ROWS_A_CHUNK = 1024


@tp.program
def statistics(x: Any) -> Any:
    """Mean and variance of every column, and the products of all pairs of columns, summed over the rows."""
    moments = tp.fold(tp.aggregators.Moments(), "row c -> c")(x)
    products = tp.einsum("row c, row k -> c k")(x, x.rename(c="k"))
    return moments, products


def write(path: Path, rows: int) -> None:
    """Write random rows as Zarr, a chunk after the other."""
    sink = tp.create(path).make((rows, COLUMNS), np.float32, ("row", "c"), (ROWS_A_CHUNK, COLUMNS))
    for start in range(0, rows, ROWS_A_CHUNK):
        stop = min(start + ROWS_A_CHUNK, rows)
        block = np.random.default_rng(start).normal(3.0, 2.0, (stop - start, COLUMNS)).astype(np.float32)
        sink.write(((start, stop), (0, COLUMNS)), block).result()
    sink.finish()


def main(words: list[str] | None = None) -> tuple[Any, Any]:
    """Write the rows, stream them, and print what was planned and measured."""
    parser = argparse.ArgumentParser(description="Statistics of an array larger than memory.")
    parser.add_argument("--rows", type=int, default=131_072)
    parser.add_argument("--memory", default="64MiB")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "x.zarr", chosen.rows)
        source = tp.open(Path(folder) / "x.zarr")
        job = tp.stream(statistics, "row", source, memory=chosen.memory)
        print(job.plan())
        moments, products = job.run()
        read = job.metrics.stage("read")
        print(f"read {read.bytes / 1e6:.0f} MB in {job.metrics.turns} turns, {job.metrics.seconds:.1f} s")
        print(f"mean {moments['mean'].mean():.4f}, variance {moments['variance'].mean():.4f}, X^T X {products.shape}")
        source.close()
    return moments, products


if __name__ == "__main__":
    main()
