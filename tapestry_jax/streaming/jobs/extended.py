"""The job for new rows alone, which goes on from the state that older ones have left: for `job.extend(new)`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph
from tapestry_jax.plan import Plan
from tapestry_jax.planning.entries.items import chunks
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.cluster.asked import check_engine
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.jobs.asked import read_plan, read_sources
from tapestry_jax.streaming.kept.extending import (
    carried_as,
    check_same,
    given_rows,
    not_extended,
    rows_of,
    traced_for,
    why_not,
)

if TYPE_CHECKING:
    from tapestry_jax.streaming.jobs.job import Job


def check_extended(job: Job, *, leaves: bool = True) -> None:
    """Refuse a job that new rows cannot go on from.

    Args:
      job: that is gone on with.
      leaves: whether its own rows have to leave a state; those that take one turn leave none.

    Raises:
      PlanError: with the reason.
    """
    if job.cache is not None:
        raise not_extended("a result that was found in cache= has no state to go on from")
    if (leaves or job.split.passes) and (why := why_not(job.split, job.dims)) is not None:
        raise not_extended(why)
    if isinstance(job.program, Graph | Plan) or job.program is None:
        raise not_extended("it was given as a graph or a plan, whose sizes are fixed; give the program itself")


def extended(job: Job, rows: int, new: Any) -> Job | None:
    """The job for new rows alone.

    Args:
      job: that is gone on with.
      rows: how many were counted until now.
      new: rows for every input that has the streamed dimension.

    Returns:
      None where there are no new rows.

    Raises:
      PlanError: for one row, different numbers of them, programs that depend on their number, and too little memory.
    """
    if (found := _newer(job, rows, new)) is None:
        return None
    planned, dims, sources = found
    grown = replace(job, planned=planned, dims=dims, sources=sources)
    changes = bool(job.split.passes) and carried_as(grown.split) != carried_as(job.split)
    if (why := why_not(grown.split, dims)) is not None or changes:
        raise not_extended(why or "for so few rows it carries another state")
    if job.engine is not None:
        check_engine(grown.split, planned.mesh, sources, job.sinks, job.checkpoint)
    if job.memory is not None and not (budget := grown.plan()).fits:
        remedy = "Give the job more memory."
        raise PlanError(message("new rows do not fit into the memory", *str(budget).splitlines(), remedy=remedy))
    return grown


def no_rows() -> NoReturn:
    """Refuse to begin without a row."""
    raise not_extended("there is no row to begin with")


def nothing_counted(way: str) -> StreamError:
    """The refusal to go on from nothing."""
    return StreamError(message("there is nothing to go on from", remedy=f"Run the job first: {way}."))


def _newer(job: Job, rows: int, new: Any) -> tuple[Plan, tuple[str, ...], tuple[Stored, ...]] | None:
    """The plan for new rows alone, its streamed dimensions, and what it reads."""
    dim = job.dims[0]
    graph = job.planned.graph
    given, places = given_rows(new, graph, job.sources, dim)
    sources = read_sources(given, None)
    if len(sources) != len(given):
        details = (f"expected {len(given)} tensors", f"got {len(sources)}")
        remedy = "Pass one for every input; files of one input are joined: tapestry_jax.storage.joined."
        raise PlanError(message("new rows are one tensor for every input that has rows", *details, remedy=remedy))
    sizes = {sources[n].shape[graph.inputs[n].results[0].names.index(dim)] for n in places if sources[n].shape}
    added = sizes.pop() if len(sizes) == 1 else -1
    if added == 0:
        return None
    if added < 2:
        told = f"got {'different numbers of rows' if added < 0 else 'one row, which makes no turns'}"
        remedy = "Give every input the same number of rows, at least two: hold one back until there are more."
        raise PlanError(message("new rows come two or more at once", told, remedy=remedy))
    first, all_rows = rows_of(graph, dim), rows + added
    whole, fresh = (traced_for(job.program, graph, job.sources, dim, size) for size in (all_rows, added))
    check_same(graph, whole, dim, (first, all_rows))
    check_same(fresh, whole, dim, (added, all_rows))
    blocks = [part.block for part in job.split.passes] or [first]
    block = min(*blocks, -(-added // 2))
    planned, dims = read_plan(fresh, {**dict(job.planned.entries), dim: chunks(size=block)}, job.planned.mesh)
    planned.verify()
    return planned, dims, read_sources(sources, fresh)
