"""The dimension of a stream where nobody has named it: the one in whose pieces the sources lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from combinators.errors import PlanError, first_line, message
from combinators.graphs.graph import Graph
from tapestry_jax.planning.entries.items import chunks
from tapestry_jax.storage.in_memory import InMemory
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.parts import Split


def chosen_dim(make: Callable[[Any], Split], graph: Graph, sources: Sequence[Stored]) -> str:
    """The one dimension in whose pieces sources lie, and that can be streamed.

    Files come before arrays in memory. A tensor that is stored in one piece lies row by row: along its first axis.

    Args:
      make: the passes of a job, for entries of a plan.
      graph: the program.
      sources: what its inputs are read from, in order.

    Raises:
      PlanError: naming the candidates where there are several, or why none of them can be streamed.
    """
    files = [n for n, source in enumerate(sources) if not isinstance(source, InMemory)]
    read = files or range(len(sources))
    dims = dict.fromkeys(dim for n in read for dim in _stored_along(graph.inputs[n].results[0].names, sources[n]))
    why = {dim: _why_not(make, dim) for dim in dims}
    found = [dim for dim, reason in why.items() if reason is None]
    if len(found) == 1:
        return found[0]
    if found:
        remedy = f"Name one: over={found[0]!r}, or sizes: over={{{found[0]!r}: tp.chunks(size=4096)}}."
        raise PlanError(
            message("several dimensions can be streamed", f"expected one of {', '.join(found)}", remedy=remedy)
        )
    remedy = "Write over={'row': tp.chunks(size=4096)}."
    details = [f"{dim}: {reason}" for dim, reason in why.items()] or ["no source with a named dimension has two cells"]
    raise PlanError(message("no dimension that the sources lie along can be streamed", *details, remedy=remedy))


def _stored_along(names: Sequence[str | None], source: Stored) -> Iterator[str]:
    shape = source.shape
    if 0 in shape:
        return
    pieces = [axis for axis, size in enumerate(shape) if source.chunks[axis] < size]
    for axis in pieces or [axis for axis, size in enumerate(shape) if size > 1][:1]:
        if (name := names[axis]) is not None:
            yield name


def _why_not(make: Callable[[Any], Split], dim: str) -> str | None:
    try:
        return None if make({dim: chunks(2)}).passes else "no loop is made of it"
    except PlanError as error:
        return first_line(error)
