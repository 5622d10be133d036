"""The job for new rows alone, which goes on from the state that older ones have left: for `job.extend(new)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.plan import Plan
from tapestry_jax.planning.entries.items import chunks
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.jobs.asked import read_plan, read_sources
from tapestry_jax.streaming.kept.extending import check_same, given_rows, rows_of, traced_for


@dataclass(frozen=True, eq=False)
class Older:
    """What is asked of the job that is gone on with.

    Attributes:
      program: what was planned.
      planned: its plan.
      block: the rows that a device takes in a turn.
      sources: what it reads, in order.
      rows: how many it has read until now.
    """

    program: Any
    planned: Plan
    block: int
    sources: Sequence[Stored]
    rows: int


def newer(job: Older, dim: str, new: Any) -> tuple[Plan, tuple[str, ...], tuple[Stored, ...]] | None:
    """The plan for new rows alone, its streamed dimensions, and what it reads.

    Args:
      job: for the older rows.
      dim: the streamed dimension.
      new: rows for every input that has the streamed dimension.

    Returns:
      None where there are no new rows.

    Raises:
      PlanError: for one row, different numbers of them, and programs that depend on their number.
    """
    graph = job.planned.graph
    given, places = given_rows(new, graph, job.sources, dim)
    sources = read_sources(given, None)
    sizes = {sources[n].shape[graph.inputs[n].results[0].names.index(dim)] for n in places if sources[n].shape}
    added = sizes.pop() if len(sizes) == 1 else -1
    if added == 0:
        return None
    if added < 2:
        told = f"got {'different numbers of rows' if added < 0 else 'one row, which makes no turns'}"
        remedy = "Give every input the same number of rows, at least two: hold one back until there are more."
        raise PlanError(message("new rows come two or more at once", told, remedy=remedy))
    first, all_rows = rows_of(graph, dim), job.rows + added
    whole, fresh = (traced_for(job.program, graph, job.sources, dim, size) for size in (all_rows, added))
    check_same(graph, whole, dim, (first, all_rows))
    check_same(fresh, whole, dim, (added, all_rows))
    block = min(job.block, -(-added // 2))
    planned, dims = read_plan(fresh, {**dict(job.planned.entries), dim: chunks(size=block)}, job.planned.mesh)
    planned.verify()
    return planned, dims, read_sources(sources, fresh)
