"""Chunks that fit: as large as the memory allows, aligned to the chunks that are stored, or refused with what would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph
from tapestry_jax.planning.entries.items import Chunks, chunks
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.fits.budget import SPILLED, Budget, shown

MOST = 128 << 20
"""Bytes that a turn reads at most where the size is left to the memory: larger turns are no faster."""
_GRAINS = 256
"""Sizes that are tried where nothing is stored in chunks."""


class Budgeted(Protocol):
    """What has a limit, and says what it needs."""

    @property
    def memory(self) -> int | None:
        """Bytes that it may need."""
        ...

    def plan(self) -> Budget:
        """What it needs."""
        ...


Job = TypeVar("Job", bound=Budgeted)


def fitting(
    make: Callable[[Any], Job], dims: Sequence[str], graph: Graph, sources: Sequence[Stored], limit: int | None
) -> Job:
    """The job with the largest chunks that fit; `make` gives one for entries of a plan.

    Raises:
      PlanError: where no input has such a dimension, or none fit.
    """
    size, chunk, per_cell = measured_along(dims[0], graph, sources)
    candidates = turns_of_chunks(size, chunk, max(1, MOST // max(1, per_cell)))
    jobs: dict[int, Job] = {}

    def job(turns: int) -> Job:
        if turns not in jobs:
            jobs[turns] = make({dim: chunks(turns) for dim in dims})
        return jobs[turns]

    if limit is None:
        return job(candidates[0][0])
    for group in candidates:
        found = _first(group, lambda turns: job(turns).plan().fits)
        # A last turn that is shorter is a program of its own: fewer turns may need less, where all are as long.
        even = [turns for turns in group if not size % turns and (found is None or turns < found)]
        found = _first(even, lambda turns: job(turns).plan().fits) or found
        if found is not None:
            return job(found)
    budget = job(candidates[-1][-1]).plan()
    raise _refused(budget, _or_stored(_or_sinks("Give more memory", budget), budget))


def check_fits(make: Callable[[Any], Job], job: Job, over: Any) -> None:
    """Refuse a job that needs more memory than it may.

    Raises:
      PlanError: with the table, and chunks that would fit.
    """
    if job.memory is None or (budget := job.plan()).fits:
        return
    remedy = _or_sinks(f"Give memory={budget.total}", budget)
    for dim, block, _ in budget.chunks[:1] if isinstance(over, Mapping) else ():
        known: Mapping[str, Any] = over
        for size in (block >> shift for shift in range(1, block.bit_length())):
            if make({**known, dim: with_size(known[dim], size)}).plan().fits:
                raise _refused(budget, f"Take smaller chunks: {{{dim!r}: tp.chunks(size={size})}} fits.")
    raise _refused(budget, _or_stored(remedy, budget))


def turns_of_chunks(size: int, chunk: int, most: int) -> tuple[list[int], list[int]]:
    """In how many turns a dimension may be taken, the fewest first: aligned to what is stored, and whatever else.

    Args:
      size: its cells.
      chunk: cells that are stored in one piece.
      most: cells of a turn.
    """
    step = chunk if chunk > 1 else max(1, size // _GRAINS)
    blocks = [min(size, step * number) for number in range(1, -(-size // step) + 1)]
    small = [step >> shift for shift in range(1, step.bit_length())]
    blocks = [block for block in (*small, *blocks) if block <= most] or [1]
    # One turn is no loop: nothing would be made piece by piece, as sinks take it.
    turns = sorted({max(min(2, size), -(-size // block)) for block in blocks if block})
    aligned = [count for count in turns if -(-size // count) % chunk == 0 or count == 1]
    return (aligned, turns) if aligned else (turns, turns)


def _first(turns: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The fewest turns that fit, found by halving: what fits in few turns fits in more."""
    low, high = 0, len(turns)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(turns[middle]) else (middle + 1, high)
    return turns[low] if low < len(turns) else None


def measured_along(dim: str, graph: Graph, sources: Sequence[Stored]) -> tuple[int, int, int]:
    """Of a dimension its size, the cells that are stored in one piece, and the bytes of all sources for a cell."""
    size, chunk, total = 0, 1, 0
    for node, source in zip(graph.inputs, sources, strict=True):
        kind = node.results[0]
        if dim in kind.names and 0 not in kind.shape:
            axis = kind.names.index(dim)
            size, total = kind.shape[axis], total + kind.nbytes // kind.shape[axis]
            stored = source.chunks[axis]
            chunk = max(chunk, stored if stored < size else 1)
    if not size:
        known = sorted({str(name) for node in graph.inputs for name in node.results[0].names if name is not None})
        remedy = f"Name one of {', '.join(known)}, or give sizes: over={{{dim!r}: tp.chunks(size=4096)}}."
        raise PlanError(message(f"no input with cells has the dimension `{dim}`", remedy=remedy))
    return size, chunk, total


def with_size(items: Any, size: int) -> Any:
    """Entries of a dimension with chunks of another size."""
    listed = items if isinstance(items, tuple | list) else (items,)
    return tuple(chunks(size=size) if isinstance(item, Chunks) else item for item in listed)


def _or_sinks(remedy: str, budget: Budget) -> str:
    """Files help where something is held in memory, and only there."""
    held = {row.name: row.bytes for row in budget.rows}
    ways = [remedy]
    ways += ["write results to sinks"] * bool(held.get("in memory"))
    ways += ["keep values between passes in a folder: checkpoint='run/'"] * bool(held.get(SPILLED))
    return f"{', '.join(ways[:-1])}{', or ' if ways[:-1] else ''}{ways[-1]}."


def _refused(budget: Budget, remedy: str) -> PlanError:
    headline = f"the stream needs {shown(budget.total)} of memory, and may have {shown(budget.limit or 0)}"
    return PlanError(message(headline, *str(budget).splitlines(), remedy=remedy))


def _or_stored(remedy: str, budget: Budget) -> str:
    """Where what one store needs is most of all, other ways of storing help most."""
    most = next(iter(budget.stores), None)
    if most is None or not most.beside.less or 2 * most.beside.bytes < budget.total:
        return remedy
    return f"Of {most.where}: {most.beside.less}"
