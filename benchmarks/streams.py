"""Memory of streams: what `job.plan()` says beside what a process took.

    python -m benchmarks.streams                 # twelve jobs, each in a process of its own
    python -m benchmarks.streams --within 1.1    # each in a memory group of its plan and a tenth
    python -m benchmarks.streams --shards 200    # one process, so many files one after the other

Peaks are of the resident set, above what the process held once the job was planned: `VmHWM`, which is set back before
the run. A small run comes first, so that threads, codecs and what is loaded late are there.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import jax
import numpy as np

import tapestry_jax as tp
from benchmarks.memory_group import limited
from benchmarks.streams_jobs import COLUMNS, JOBS, Streamed, write
from combinators.frozen import dataclass

WARM = 512
"""Rows of the run before the one that is measured."""


@dataclass(frozen=True)
class Peak:
    """What a job was said to need, and what it took.

    Attributes:
      job: its name.
      planned: bytes, by `job.plan()`.
      measured: bytes that the process held at most, above those before the run.
      seconds: of the processor.
    """

    job: str
    planned: int
    measured: int
    seconds: float

    @property
    def ratio(self) -> float:
        """Measured over planned."""
        return self.measured / self.planned


def resident() -> int:
    """Bytes that this process holds now; the peak begins here again."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """The most bytes that it held since."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def measure(name: str, chosen: Streamed, folder: Path, within: float | None) -> Peak:
    """Run a job in this process; `within` is the share of its plan that a memory group lets it take."""
    chosen.job(folder, WARM).run()
    job = chosen.job(folder)
    planned, before, since = job.plan().total, resident(), time.process_time()
    with nullcontext() if within is None else limited(int(within * planned)):
        result = job.run()
    measured, seconds = peak() - before, time.process_time() - since
    del result
    return Peak(name, planned, measured, seconds)


def apart(name: str, folder: Path, within: float | None) -> Peak:
    """Run a job in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.streams", "--job", name, "--folder", str(folder)]
    command += [] if within is None else ["--within", str(within)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise RuntimeError(f"{name}:\n{said.stderr}")
    return Peak(**json.loads(said.stdout.splitlines()[-1]))


def shards(count: int, folder: Path) -> list[int]:
    """Resident bytes behind each of `count` files, which are made, streamed and forgotten one after the other."""
    program, held = tp.fold(tp.aggregators.Moments(), "row c -> c"), list[int]()
    for number in range(count):
        rows = np.random.default_rng(number).normal(size=(4096, COLUMNS)).astype(np.float32)
        path = folder / f"shard{number}.zarr"
        sink = tp.create(path, chunks=(1024, COLUMNS)).make(rows.shape, rows.dtype, ("row", "c"), None)
        sink.write(((0, 4096), (0, COLUMNS)), rows).result()
        source = sink.finish()
        found = tp.stream(program, {"row": tp.chunks(size=1024)}, source).run()
        assert np.allclose(found["mean"], rows.mean(0), atol=1e-5)
        source.close()
        held.append(resident())
    return held


HEAD = "| job | planned, MiB | measured, MiB | ratio | CPU s |\n|---|---:|---:|---:|---:|"


def row(each: Peak) -> str:
    """A row of the table, in Markdown."""
    planned, measured = each.planned / 2**20, each.measured / 2**20
    return f"| {each.job} | {planned:.1f} | {measured:.1f} | {each.ratio:.2f} | {each.seconds:.1f} |"


def main(words: list[str] | None = None) -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--job", choices=list(JOBS), help="in this process, of files that are there")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--within", type=float, default=None)
    chosen = parser.parse_args(words)
    if chosen.job:
        jax.config.update("jax_num_cpu_devices", JOBS[chosen.job].devices)
        found = measure(chosen.job, JOBS[chosen.job], chosen.folder, chosen.within)
        print(json.dumps({name: getattr(found, name) for name in ("job", "planned", "measured", "seconds")}))
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as made:
        folder = Path(made)
        if chosen.shards:
            held = shards(chosen.shards, folder)
            steps = [held[at] / 2**20 for at in range(0, len(held), max(1, len(held) // 10))]
            print("MiB held:", " ".join(f"{each:.1f}" for each in steps), f"{held[-1] / 2**20:.1f}")
            return
        write(folder)
        print(HEAD)
        for name in chosen.only:
            print(row(apart(name, folder, chosen.within)), flush=True)


if __name__ == "__main__":
    main()
