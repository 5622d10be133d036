"""Column statistics on the workers of a cluster; a killed worker costs what it had in flight, and changes no bit.

    python examples/cluster.py                # two processes of this machine
    python examples/cluster.py --kill         # and one of them is killed in the middle
    python examples/cluster.py --scheduler tcp://host:8786

Every task runs a range of turns, commits what it has computed to the folder of the job, and returns its name alone.
The ranges and the order in which they are merged follow from the plan, whoever runs them. Needs
`pip install 'tapestry-jax[cluster]'`.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import distributed
import jax
import numpy as np

import tapestry_jax as tp

COLUMNS = 64


def statistics(x: Any) -> Any:
    """The sum, the first and the last of every column: of floats, and of what does not commute."""
    agg = tp.aggregators
    return tp.fold(agg.Sum() & agg.First() & agg.Last(), "row c -> c")(x)


def kill_one(client: Any, folder: Path) -> None:
    """Kill a worker once some of the work is committed."""
    process = next(iter(client.run(os.getpid).values()))
    while not any(folder.glob("partials/*/turns-*")):
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    print(f"killed the worker {process}")


def run(client: Any, place: Path, name: str, *, kill: bool = False) -> list[Any]:
    """A job of its own folder, on the workers of a client."""
    job = tp.stream(
        statistics, {"row": tp.chunks(size=256)}, tp.open(place / "x.npy"), checkpoint=place / name, engine=client
    )
    killer = threading.Thread(target=kill_one, args=(client, place / name)) if kill else None
    if killer is not None:
        killer.start()
    result = jax.tree.leaves(job.run())
    if killer is not None:
        killer.join()
    print(f"{name}: {job.metrics.turns} turns in {job.metrics.seconds:.1f} s")
    return result


def clients(stack: ExitStack, scheduler: str | None) -> Iterator[Any]:
    """A cluster that there is already; or one of two processes, and the same of one."""
    if scheduler is not None:
        yield stack.enter_context(distributed.Client(scheduler))
        return
    given: Any = {"dashboard_address": "127.0.0.1:0", "env": {"JAX_PLATFORMS": "cpu"}}
    cluster: Any = stack.enter_context(distributed.LocalCluster(n_workers=2, threads_per_worker=1, **given))
    client = stack.enter_context(distributed.Client(cluster))
    yield client
    cluster.scale(1)
    yield client


def main(words: list[str] | None = None) -> list[list[Any]]:
    """Run the same job on every cluster, and compare the bits."""
    parser = argparse.ArgumentParser(description="Statistics on the workers of a cluster.")
    parser.add_argument("--rows", type=int, default=131_072)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--scheduler")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder)
        rows = np.random.default_rng(0).normal(3.0, 2.0, (chosen.rows, COLUMNS)).astype(np.float32)
        np.save(place / "x.npy", rows)
        results = [
            run(client, place, f"run {number}", kill=chosen.kill and number == 0)
            for number, client in enumerate(clients(stack, chosen.scheduler))
        ]
    same = all(a.tobytes() == b.tobytes() for other in results for a, b in zip(results[0], other, strict=True))
    print(f"the same bits in every run: {same}; largest error {np.abs(results[0][0] / rows.sum(0) - 1).max():.1e}")
    return results


if __name__ == "__main__":
    main()
