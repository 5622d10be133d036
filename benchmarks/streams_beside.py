"""One pass over a Zarr array: column means, variances and X^T X, beside a bare loop and Dask.

    python -m benchmarks.streams_beside --rows 1966080                    # 4 GB of float32 in chunks of 64 MiB
    python -m benchmarks.streams_beside --rows 1966080 --what moments     # bound by memory: beside reading alone
    python -m benchmarks.streams_beside --rows 1966080 --what centred     # x - mean(x) into a file, in a quarter of x

Peaks are of the resident sets of a process and its children, above what the process held once everything was imported
and planned. Dask's arrays of workers count from their start. Nothing drops the system's cache of files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil

COLUMNS = 512
Result = tuple[Any, ...]


def chunk_of(rows: int) -> int:
    """Rows of a chunk: 32768, 64 MiB, of the 4 GB; fewer of fewer."""
    return max(1024, min(32768, rows // 60 // 1024 * 1024))


def write(path: Path, rows: int) -> None:
    """Rows far from zero, so that variances by sums of squares lose digits."""
    import tapestry_jax as tp

    chunk = chunk_of(rows)

    sink = tp.create(str(path), chunks=(chunk, COLUMNS)).make((rows, COLUMNS), np.float32)
    for start in range(0, rows, chunk):
        stop = min(start + chunk, rows)
        sink.write(((start, stop), (0, COLUMNS)), piece(start, stop)).result()
    sink.finish().close()


def piece(start: int, stop: int) -> np.ndarray:
    """Rows of the array."""
    return np.random.default_rng(start).normal(10, 1, (stop - start, COLUMNS)).astype(np.float32)


def streamed(path: Path, memory: int | None = None) -> Callable[[], Result]:
    """By `tp.stream`."""
    import tapestry_jax as tp

    @tp.program("row c -> c, c, c d")
    def statistics(x):  # type: ignore[no-untyped-def]
        found = tp.fold(tp.aggregators.Moments(2), "row c -> c")(x)
        return found["mean"], found["variance"], tp.einsum("row c, row d -> c d")(x, x.rename(c="d"))

    source = tp.open(str(path))
    job = tp.stream(statistics, {"row": tp.chunks(size=source.chunks[0])}, source, memory=memory)
    print(job.plan(), file=sys.stderr)
    return lambda: tuple(map(np.asarray, job.run()))


def limited(path: Path) -> Callable[[], Result]:
    """The same with a limit, which leaves room for two turns under way instead of four."""
    import tapestry_jax as tp

    # Seven chunks are being decoded at most, two are buffers; the program takes little.
    return streamed(path, 9 * tp.open(str(path)).chunks[0] * COLUMNS * 4 + 2**25)


def bare(path: Path) -> Callable[[], Result]:
    """By TensorStore and NumPy, the next chunk read meanwhile."""
    import tensorstore as ts

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    array = ts.open(spec, read=True).result()
    rows = array.shape[0]
    chunk_rows = chunk_of(rows)

    def run() -> Result:
        total, squares = np.zeros(COLUMNS), np.zeros(COLUMNS)
        products = np.zeros((COLUMNS, COLUMNS))
        pending = array[:chunk_rows].read()
        for start in range(0, rows, chunk_rows):
            chunk = pending.result()
            if start + chunk_rows < rows:
                pending = array[start + chunk_rows : start + 2 * chunk_rows].read()
            total += chunk.sum(0)
            squares += (chunk * chunk).sum(0)
            products += chunk.T @ chunk
        mean = total / rows
        return mean, squares / rows - mean**2, products

    return run


def moments(path: Path) -> Callable[[], Result]:
    """Means and variances alone, by `tp.stream`."""
    import tapestry_jax as tp

    program = tp.fold(tp.aggregators.Moments(2), "row c -> c")
    source = tp.open(str(path))
    job = tp.stream(program, {"row": tp.chunks(size=source.chunks[0])}, source)
    print(job.plan(), file=sys.stderr)

    def run() -> Result:
        found = job.run()
        return found["mean"], found["variance"], None

    return run


def reading(path: Path) -> Callable[[], Result]:
    """Reading alone, by TensorStore, into arrays that are there: as many chunks under way as there are arrays."""
    import tensorstore as ts

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    array = ts.open(spec, read=True).result()
    chunk = chunk_of(array.shape[0])
    buffers = [np.zeros((chunk, COLUMNS), np.float32) for _ in range(4)]

    def run() -> Result:
        under_way: list[Any] = [None] * len(buffers)
        for number, start in enumerate(range(0, array.shape[0], chunk)):
            place, stop = number % len(buffers), min(start + chunk, array.shape[0])
            if under_way[place] is not None:
                under_way[place].result()
            target = ts.array(buffers[place][: stop - start])
            under_way[place] = target.write(array[start:stop]).commit
        for each in filter(None, under_way):
            each.result()
        return None, None, None

    return run


def dask(path: Path) -> Callable[[], Result]:
    """By Dask arrays on two processes of one thread."""
    import dask.array as da
    from dask.base import compute
    from distributed import Client, LocalCluster

    client = Client(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"))
    x = da.from_zarr(str(path))

    def run() -> Result:
        found = compute(x.mean(0), x.var(0), x.T @ x)
        client.shutdown()
        return tuple(map(np.asarray, found))

    return run


def centred(path: Path) -> Callable[[], Result]:
    """x - mean(x), by `tp.stream` in a quarter of the array's bytes."""
    import tapestry_jax as tp

    @tp.program("row c -> row c")
    def program(x):  # type: ignore[no-untyped-def]
        return x - tp.fold(tp.aggregators.Mean(), "row c -> c")(x)

    source = tp.open(str(path))
    sink, limit = tp.create(str(_made(path)), overwrite=True), source.shape[0] * COLUMNS
    job = tp.stream(program, "row", source, sink, memory=limit)
    print(job.plan(), file=sys.stderr)

    def run() -> Result:
        job.run()
        return None, None, None

    return run


def centred_by_dask(path: Path) -> Callable[[], Result]:
    """The same by Dask's arrays, on two threads."""
    import dask.array as da

    def run() -> Result:
        x = da.from_zarr(str(path))
        da.to_zarr(x - x.mean(0), str(_made(path)), overwrite=True)
        return None, None, None

    return run


def centred_by_xarray(path: Path) -> Callable[[], Result]:
    """The same by xarray over Dask, on two threads."""
    import dask.array as da
    import xarray as xr  # type: ignore[import-not-found]

    def run() -> Result:
        x = xr.DataArray(da.from_zarr(str(path)), dims=("row", "c"), name="x")
        (x - x.mean("row")).to_dataset().to_zarr(str(_made(path)), mode="w", consolidated=False)
        return None, None, None

    return run


def _made(path: Path) -> Path:
    return path.parent / "made.zarr"


def check_centred(path: Path, rows: int) -> None:
    """Raise where the file that was made is another one."""
    import zarr

    found: Any = zarr.open(str(_made(path)), mode="r")
    made: Any = found["x"] if isinstance(found, zarr.Group) else found
    first = np.asarray(made[: chunk_of(rows)])
    expected = piece(0, chunk_of(rows)) - np.float32(10)
    assert made.shape == (rows, COLUMNS) and np.max(np.abs(first - expected)) < 0.05


RUNNERS = {
    "products": {
        "tp.stream": streamed,
        "tp.stream, memory=": limited,
        "NumPy and TensorStore": bare,
        "Dask, 2 processes": dask,
    },
    "moments": {"tp.stream": moments, "TensorStore, reading alone": reading},
    "centred": {"tp.stream": centred, "Dask, 2 threads": centred_by_dask, "xarray, 2 threads": centred_by_xarray},
}
"""For what is computed, who does it. xarray is no dependency of the project: `pip install xarray` where it is asked."""


def tree() -> int:
    """Bytes that this process and its children hold."""
    me, held = psutil.Process(), 0
    for process in (me, *me.children(recursive=True)):
        try:
            held += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return held


def spent() -> float:
    """Seconds of the processor that this process and its children have taken, those that have ended as well."""
    living, total = psutil.Process().children(recursive=True), sum(os.times()[:4])
    for process in living:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def measured(what: str, name: str, path: Path) -> None:
    """Run one, and print what it took."""
    own = psutil.Process().memory_info().rss
    run = RUNNERS[what][name](path)
    base = own if name.startswith("Dask") else tree()
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], tree())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began, before = time.perf_counter(), spent()
    _, variance, _ = run()
    wall, seconds = time.perf_counter() - began, spent() - before
    done.set()
    watcher.join()
    reference = np.asarray(json.loads((path.parent / "variance.json").read_text()))
    error = None if variance is None else float(np.max(np.abs(np.asarray(variance) - reference) / reference))
    told = {"wall": wall, "seconds": seconds, "peak": peak[0] - base, "whole": peak[0], "error": error}
    print(json.dumps(told))


def reference(rows: int) -> list[float]:
    """Variances in float64, in two passes."""
    chunk = chunk_of(rows)
    total, squares = np.zeros(COLUMNS), np.zeros(COLUMNS)
    for start in range(0, rows, chunk):
        total += piece(start, min(start + chunk, rows)).sum(0, dtype=np.float64)
    for start in range(0, rows, chunk):
        squares += ((piece(start, min(start + chunk, rows)) - total / rows) ** 2).sum(0)
    return (squares / rows).tolist()


def main() -> None:
    """Write the array, run each in a process of its own, in turns, and print the table."""
    parser = argparse.ArgumentParser(description="One pass over a Zarr array, beside others.")
    parser.add_argument("--rows", type=int, default=491520)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--what", choices=[*RUNNERS], default="products")
    parser.add_argument("--folder", help="where the array is written; it is removed in the end")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "PATH"))
    chosen = parser.parse_args()
    if chosen.one:
        measured(chosen.what, chosen.one[0], Path(chosen.one[1]))
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        path = Path(folder) / "x.zarr"
        write(path, chosen.rows)
        known = [] if chosen.what == "centred" else reference(chosen.rows)
        (Path(folder) / "variance.json").write_text(json.dumps(known))
        # What was written is on its way to the disk.
        os.sync()
        print(f"{chosen.what}, {chosen.rows} x {COLUMNS} float32")
        print("| runner | wall, s | MB/s | CPU, s | peak above start, MiB | peak, MiB | error of the variance |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        there = [each for each in RUNNERS[chosen.what] if each[:6] != "xarray" or find_spec("xarray")]
        for name in there * chosen.rounds:
            print(row(name, chosen.rows, asked(chosen.what, name, path)), flush=True)
            if chosen.what == "centred":
                check_centred(path, chosen.rows)


def asked(what: str, name: str, path: Path) -> dict[str, Any]:
    """What a process of its own says."""
    command = [sys.executable, "-m", "benchmarks.streams_beside", "--what", what, "--one", name, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise RuntimeError(f"{name}:\n{said.stderr}")
    return json.loads(said.stdout.splitlines()[-1])


def row(name: str, rows: int, told: dict[str, Any]) -> str:
    """A row of the table, in Markdown."""
    rate = rows * COLUMNS * 4 / told["wall"] / 1e6
    sizes = f"{told['peak'] / 2**20:.0f} | {told['whole'] / 2**20:.0f}"
    error = "" if told["error"] is None else f"{told['error']:.1e}"
    return f"| {name} | {told['wall']:.1f} | {rate:.0f} | {told['seconds']:.1f} | {sizes} | {error} |"


if __name__ == "__main__":
    main()
