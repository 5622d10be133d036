"""`tp.tune`: the size of chunks and how far is read ahead, chosen by short trials of the job itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from combinators.errors import PlanError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.plan import Plan
from tapestry_jax.streaming.fits.budget import shown
from tapestry_jax.streaming.fits.fitting import MOST, measured_along, turns_of_chunks, with_size
from tapestry_jax.streaming.jobs.asked import read_plan
from tapestry_jax.streaming.jobs.job import Job
from tapestry_jax.streaming.jobs.stream import stream
from tapestry_jax.streaming.jobs.trial import cells_a_second
from tapestry_jax.streaming.moving.arriving import Arriving
from tapestry_jax.streaming.running import AHEAD

TIED = 0.05
"""Trials whose rates differ by no more than this share are as fast as each other: the one of least memory is taken."""
AMOUNT = 16 << 20
"""Bytes that a trial reads of each pass, at least."""
ROUNDS = 2
"""How often each is tried, one after the other; its best counts."""


@dataclass(frozen=True)
class Tried:
    """One trial.

    Attributes:
      size: cells of the streamed dimension that a device takes in a turn.
      prefetch: bytes of the buffers into which turns are read ahead.
      rate: cells a second.
      memory: bytes that were planned for it.
    """

    size: int
    prefetch: int
    rate: float
    memory: int


@dataclass(frozen=True)
class Tuned:
    """What `tp.tune` has chosen: `tp.stream(program, sources=..., **tuned.options)`. `print` shows its table.

    Attributes:
      over: entries for `over=` of `tp.stream`.
      prefetch: bytes for `prefetch=`.
      chosen: the trial that was taken.
      tried: all of them, in their order.
    """

    over: Mapping[str, Any]
    prefetch: int
    chosen: Tried
    tried: tuple[Tried, ...]

    @property
    def options(self) -> dict[str, Any]:
        """What to pass to `tp.stream`."""
        return {"over": dict(self.over), "prefetch": self.prefetch}

    def __str__(self) -> str:
        rows = [("chunk", "prefetch", "cells a second", "memory", "")]
        for each in self.tried:
            mark = "chosen" if each is self.chosen else ""
            rows.append((f"{each.size:,}", shown(each.prefetch), f"{each.rate:,.0f}", shown(each.memory), mark))
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        return "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def tune(job: Any, *arguments: Any, **options: Any) -> Tuned:
    """Choose the size of chunks and how far is read ahead, by turning a few chunks of the data.

    Sizes that are stored in whole chunks and fit into the memory of the job are tried, then how far is read ahead. Of
    those that are as fast as the fastest, but for a twentieth, the one that needs the least memory is taken. Results go
    nowhere, so that how fast a sink is does not count. Nothing is changed: the result of a stream does not depend on
    its chunks, but for the order in which floats are added.

    Args:
      job: of `tp.stream`; or a program, and then the arguments of `tp.stream`.
      arguments: of `tp.stream`, for a program.
      options: likewise.

    Returns:
      What to pass to `tp.stream`, with a table of what was tried.

    Raises:
      PlanError: for jobs of several dimensions, of workers, of iterators or of a plan, whose chunks are fixed.

    Example:
      >>> import numpy as np
      >>> import tapestry_jax as tp
      >>> x, total = np.ones((64, 2), np.float32), tp.fold(tp.aggregators.Sum(), "row c -> c")
      >>> tuned = tp.tune(total, "row", x)
      >>> tp.stream(total, sources=x, **tuned.options).run()
      array([64., 64.], dtype=float32)
    """
    if isinstance(job, Job) and (arguments or options):
        given = ", ".join(
            [
                *(f"{spelt(each, 40)}" for each in arguments),
                *(f"{name}={spelt(each, 40)}" for name, each in options.items()),
            ]
        )
        remedy = "Say it where the job is made, or pass the program in its place."
        raise PlanError(message("tp.tune was given a job, and arguments of tp.stream", f"got {given}", remedy=remedy))
    found = job if isinstance(job, Job) else stream(job, *arguments, **options)
    _check_tuned(found)
    sizes = _sizes(found)
    tried = _trials([_with(found, size, found.ahead) for size in sizes])
    size = chosen(tried).size
    tried += _trials(_other_rings(found, size))
    best = chosen([each for each in tried if each.size == size])
    entries = dict(found.planned.entries)
    entries[found.dims[0]] = with_size(entries[found.dims[0]], size)
    over = {dim: items[0] if len(items) == 1 else items for dim, items in entries.items()}
    return Tuned(over, best.prefetch, best, tuple(tried))


def chosen(tried: Sequence[Tried]) -> Tried:
    """Of those as fast as the fastest the one of least memory, then of the smallest chunks, then of least ahead."""
    fastest = max(each.rate for each in tried)
    near = [each for each in tried if each.rate >= (1 - TIED) * fastest]
    return min(near, key=lambda each: (each.memory, each.size, each.prefetch))


def _trials(jobs: Sequence[Job]) -> list[Tried]:
    rates = [
        max(pair) for pair in zip(*([cells_a_second(job, AMOUNT) for job in jobs] for _ in range(ROUNDS)), strict=True)
    ]
    return [
        Tried(job.split.passes[0].block, job.ahead, rate, job.plan().total)
        for job, rate in zip(jobs, rates, strict=True)
    ]


def _sizes(job: Job) -> list[int]:
    """Sizes that are tried, the largest first: each a quarter of the one before, aligned to what is stored."""
    dim, graph = job.dims[0], job.planned.graph
    size, chunk, per_cell = measured_along(dim, graph, job.sources)
    devices = _devices(job)
    aligned, _ = turns_of_chunks(size, chunk, max(1, MOST // max(1, per_cell)))
    blocks = sorted({-(-size // (count * devices)) for count in aligned if count > 1}, reverse=True)
    few, last = [job.split.passes[0].block], 0
    for block in blocks:
        if not last or block <= last // 4:
            few.append(block)
            last = block
    return [block for block in dict.fromkeys(few[:6]) if _streams(job, block)]


def _other_rings(job: Job, size: int) -> list[Job]:
    """The job with other prefetch that fits, where this is another number of buffers."""
    known, found = {_with(job, size, job.ahead).plan().total}, list[Job]()
    for ahead in (0, AHEAD // 4, AHEAD, 2 * AHEAD):
        other = _with(job, size, ahead)
        budget = other.plan()
        if budget.fits and budget.total not in known:
            known.add(budget.total)
            found.append(other)
    return found


def _streams(job: Job, block: int) -> bool:
    """Whether a size makes a loop, and fits."""
    if block == job.split.passes[0].block:
        return True
    try:
        other = _with(job, block, job.ahead)
        return bool(other.split.passes) and other.plan().fits
    except PlanError:
        return False


def _devices(job: Job) -> int:
    items = dict(job.planned.entries)[job.dims[0]]
    return job.split.schedule.mesh.size([item for item in items if isinstance(item, str)])


def _with(job: Job, size: int, ahead: int) -> Job:
    """The job with other chunks, and another ring."""
    dim, planned = job.dims[0], job.planned
    entries = dict(planned.entries)
    entries[dim] = with_size(entries[dim], size)
    again, dims = read_plan(planned.graph, entries, planned.mesh)
    return replace(job, planned=again, dims=dims, prefetch=ahead)


def _check_tuned(job: Job) -> None:
    why = None
    if len(job.dims) != 1:
        why = f"several dimensions are streamed: {', '.join(job.dims)}"
    elif not job.split.passes:
        why = f"`{job.dims[0]}` is taken in one turn"
    elif job.engine is not None:
        why = "its chunks are turned by workers"
    elif any(isinstance(source, Arriving) for source in job.sources):
        why = "what an iterator gives is read once"
    elif isinstance(job.program, Plan):
        why = "it was given as a plan, whose chunks are fixed; give the graph"
    if why is not None:
        raise PlanError(message("this job is not tuned", why, remedy="Say chunks yourself: tp.chunks(size=4096)."))
