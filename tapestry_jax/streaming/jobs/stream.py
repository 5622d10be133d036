"""`tp.stream`: a program over data that lie in files, chunk by chunk, by the schedule that loops on the device have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from combinators.arguments import is_whole, read_flag
from combinators.errors import PlanError, message
from tapestry_jax.lowering.devices import require_running
from tapestry_jax.plan import Plan
from tapestry_jax.storage.creating import Creation
from tapestry_jax.streaming.cached.cache import cache_of
from tapestry_jax.streaming.cached.entries import read_cache
from tapestry_jax.streaming.cluster.asked import check_engine, read_engine
from tapestry_jax.streaming.fits.allowed import allowed, check_allowed
from tapestry_jax.streaming.fits.budget import read_memory
from tapestry_jax.streaming.fits.fitting import check_fits, fitting
from tapestry_jax.streaming.jobs.asked import (
    read_graph,
    read_names,
    read_plan,
    read_sources,
    sizes_left_out,
    with_sizes,
)
from tapestry_jax.streaming.jobs.job import Job
from tapestry_jax.streaming.jobs.left_out import chosen_dim
from tapestry_jax.streaming.kept.apart import check_apart, touch
from tapestry_jax.streaming.kept.checkpoint import read_checkpoint
from tapestry_jax.streaming.moving.in_order import check_in_order
from tapestry_jax.streaming.moving.placing import places_of
from tapestry_jax.streaming.moving.sinks import read_sinks


def stream(
    program: Any,
    over: Any = None,
    sources: Any = (),
    sinks: Any = None,
    *,
    memory: Any = None,
    mesh: Any = None,
    checkpoint: Any = None,
    save_every: Any = "30s",
    progress: Any = False,
    engine: Any = None,
    prefetch: Any = None,
    cache: Any = None,
) -> Job:
    """Run a program over data that need not fit into memory, chunk by chunk.

    The loops over the streamed dimension are those of `tp.plan` with `tp.chunks`, turned by the host: a turn reads its
    pieces of the sources, runs on the devices, and writes its pieces of the results. Folds and scans are carried on the
    devices. A program with several levels, such as `x - mean(x)`, takes several passes.

    Args:
      program: an arrow or a function as `tp.trace` takes it, a graph, or a plan that takes dimensions in chunks. Jobs
        of one program share what was compiled.
      over: entries as in `tp.plan`, of which those with `tp.chunks` are streamed: `{"row": tp.chunks(size=4096)}`. The
        name of a dimension, or several, leaves the size to the memory: the largest chunks that fit, aligned to those
        that are stored where that can be, and of one length where larger ones fit so; left out, it is the one dimension
        in whose pieces the sources lie and that can be streamed. `{"y": (tp.chunks(size=512), tp.halo(depth=8))}` takes
        eight turns of a `tp.iterate` that reads
        neighbours in each pass; with `tp.halo` alone the size is left to the memory. For a plan the names of dimensions
        that it takes in chunks; by default all.
      sources: what the inputs are read from, in their order or by name: what `tp.open` gives, arrays, or for a graph
        iterators over arrays of rows, which are read once and in order (with `checkpoint`: into its folder, first).
      sinks: where outputs are written, by name or, for a program with one result, as they are: what `tp.create` gives.
        Outputs without one are returned as arrays. None lies in another, or in what is read.
      memory: bytes that the stream may need beside the program itself, such as `"512MiB"`; `job.plan()` shows for what.
        At most what the machine has, and the control groups of the process allow.
      mesh: whose devices run the turns; by default the first device alone.
      checkpoint: a folder of the job's own, in which it keeps how far it is: a job that was killed goes on from there,
        with other chunks too, and one that has finished gives its result again.
      save_every: how often: a number of turns, or seconds as text, `"30s"`.
      progress: whether a run shows a bar, by tqdm: turns done, the rate of reading, and the time that is left.
      engine: a client of `dask.distributed` whose workers turn the chunks; `"dask"` for a cluster of
        this machine that ends with the job. It needs `checkpoint=`, in a folder that workers have as well.
      prefetch: bytes of the buffers into which turns are read ahead, such as `"64MiB"`; two turns have buffers in any
        case, and under a limit of memory no more where nothing is said. `tp.tune` finds what is fast.
      cache: a folder in which values are kept, for this and for other jobs: what passes leave and what outputs are, by
        what computes them and of which sources. It grows until `tp.prune_cache` makes it smaller. With `checkpoint` or
        `engine` a job whose outputs are there runs nothing, and another is kept and turned as ever.

    Returns:
      A job; `job.run()` runs it.

    Raises:
      PlanError: for what cannot be streamed, does not fit into the memory, and wrong sources or sinks.
      MeshError: for a mesh without devices.

    Example:
      >>> import numpy as np
      >>> import tapestry_jax as tp
      >>> x = np.arange(12.0, dtype=np.float32).reshape(6, 2)
      >>> total = tp.fold(tp.aggregators.Sum(), "row c -> c")
      >>> tp.stream(total, {"row": tp.chunks(size=2)}, x).run()
      array([30., 36.], dtype=float32)
    """
    kept, shows = read_checkpoint(checkpoint, save_every), read_flag(progress, "progress= of tp.stream", PlanError)
    client, folder = read_engine(engine), read_cache(cache)
    if folder is not None and kept is not None and touch(folder, kept.folder):
        told = f"got cache={str(folder)!r:.80} and checkpoint={str(kept.folder)!r:.80}"
        remedy = "Give each a folder of its own."
        raise PlanError(message("cache= and checkpoint= are in each other's way", told, remedy=remedy))
    found, limit = read_sources(sources, program), read_memory(memory)
    ahead = 0 if is_whole(prefetch) and prefetch == 0 else read_memory(prefetch, "prefetch")
    check_allowed(limit, allowed())
    graph = read_graph(program, found)
    checked, contents = read_sources(found, graph), dict[int, str]()

    def job_over(entries: Any) -> Job:
        planned, dims = read_plan(graph, entries, mesh)
        require_running(planned.mesh)
        planned.verify()
        job = Job(planned, dims, checked, read_sinks(sinks, planned.graph), limit, kept, shows, program, client, ahead)
        if folder is not None:
            job = replace(job, cache=cache_of(planned, dims, folder, contents))
        _check_sinks(job)
        if client is not None:
            check_engine(job.split, planned.mesh, checked, job.sinks, kept)
        if kept is None:
            check_in_order(job.split, checked, places_of(planned.mesh))
        return job

    if not isinstance(graph, Plan) and not isinstance(over, Mapping):
        dims = (
            [chosen_dim(lambda entries: job_over(entries).split, graph, checked)] if over is None else read_names(over)
        )
        return fitting(job_over, dims, graph, checked, limit)
    if not isinstance(graph, Plan) and (dims := sizes_left_out(over)) and limit is not None:
        return fitting(lambda sizes: job_over(with_sizes(over, sizes)), dims, graph, checked, limit)
    job = job_over(over)
    check_fits(job_over, job, over)
    return job


def _check_sinks(job: Job) -> None:
    graph, slots = job.planned.graph, job.split.schedule.inputs
    for each in job.sinks.values():
        if job.checkpoint is not None and isinstance(each, Creation) and each.format.again is None:
            why = f"what is written to {each.where} is there when it is finished, and not before"
            remedy = "Leave checkpoint= out, or write another format and copy it."
            raise PlanError(message("a sink of a job with checkpoint= has to survive it", why, remedy=remedy))
    given = [n for n in job.sinks if job.split.outputs[n] in slots]
    if given:
        name = job.planned.graph.outputs[given[0]][0]
        headline = f"the output `{name}` is an input as it is, and needs no sink"
        raise PlanError(message(headline, remedy="Leave it out of sinks=, and copy what it is read from."))
    named = {n: (graph.outputs[n][0], each) for n, each in job.sinks.items()}
    folder = None if job.checkpoint is None else job.checkpoint.folder
    check_apart(job.split, [node.name for node in graph.inputs], job.sources, named, folder)
