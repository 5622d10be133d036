"""Jobs that are planned, traced and compiled once, for the processes that are forked from this one.

Compiling is what a killed job pays for when it goes on, and no part of what a kill may harm: that is what it finds in
its folder, and what it does with it. A forked process has no threads of XLA's, but what is compiled runs in the thread
that calls it where nothing is dispatched behind its back: so a job costs what it reads, computes and keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tapestry_jax.streaming.cluster import driver, task
from tapestry_jax.streaming.cluster.handed import Built, Handed
from tapestry_jax.streaming.jobs import batches
from tapestry_jax.streaming.jobs.asked import read_sources
from tests.tapestry_jax.streaming.kept.killed_jobs import PREPARED, anew, arrays, ran, stream

WORKERS = "forked"
"""The engine of jobs whose ranges are turned by processes of the test's own."""


def prepare(name: str, size: int, folder: Path, engine: Any = None) -> list[np.ndarray]:
    """Run a job in this process, and keep what was made of it; its result.

    Args:
      name: of the job.
      size: of its chunks.
      folder: an empty one.
      engine: None, or `WORKERS`: its ranges are run one after the other, here.
    """
    _without_threads()
    _record()
    folder.mkdir(parents=True)
    if (name, size) not in PREPARED:
        PREPARED[name, size] = stream(name, size, folder)
    return arrays(ran(name, size, folder, 10**6, engine))


def _without_threads() -> None:
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _record() -> None:
    """From here on what is planned for new rows, and what workers build, is kept, and found again."""
    if getattr(batches.extended, "records", False):
        return
    extended, traced_for = batches.extended, batches.traced_for
    grown: dict[Any, Any] = {}
    traced: dict[Any, Any] = {}
    known: dict[Any, Built] = {}

    def found_extended(job: Any, rows: int, new: Any) -> Any:
        key = id(job.planned), rows
        if key not in grown:
            grown[key] = extended(job, rows, new)
        sources = read_sources((new,), grown[key].planned.graph)
        again = dict.fromkeys(("sinks", "checkpoint", "engine"))
        return anew(grown[key], sources=sources, **{name: getattr(job, name) for name in again})

    def found_traced(program: Any, graph: Any, sources: Any, dim: str, rows: int) -> Any:
        if (id(program), rows) not in traced:
            traced[id(program), rows] = traced_for(program, graph, sources, dim, rows)
        return traced[id(program), rows]

    def found_built(handed: Handed) -> Built:
        key = handed.graph_key, handed.plan, handed.outline, handed.step
        found = Built(handed)
        if key not in known:
            known[key] = found
        for name in ("plan", "split", "programs", "part", "rounds"):
            found.__dict__[name] = getattr(known[key], name)
        return found

    found_extended.records = True  # type: ignore[attr-defined]
    batches.extended, batches.traced_for, task.built = found_extended, found_traced, found_built
    driver.in_any_order = one_after_the_other


def one_after_the_other(
    client: Any, handed: Handed, todo: Sequence[tuple[int, int]], number: int | None = None
) -> Iterator[int]:
    """Ranges, run in this process."""
    for begin, stop in todo:
        task.run_range(handed, begin, stop, number)
        yield stop - begin
