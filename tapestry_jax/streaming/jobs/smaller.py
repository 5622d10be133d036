"""The job that is left where values are known: they are read as sources, and what only they need is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from combinators.errors import PlanError
from combinators.frozen import dataclass
from combinators.graphs.given import Given, given
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Ref
from tapestry_jax.plan import Plan
from tapestry_jax.planning.rewrites.carriers import read_accumulate, wide_enough
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.jobs.asked import read_plan
from tapestry_jax.streaming.kept.apart import check_apart
from tapestry_jax.streaming.split import split


@dataclass(frozen=True, eq=False)
class Smaller:
    """What is left to be computed.

    Attributes:
      part: the graph that is left, and what of the whole one its inputs and nodes are.
      planned: its plan; None where nothing of it is streamed.
      dims: the streamed dimensions.
      sources: what its inputs are read from.
    """

    part: Given
    planned: Plan | None
    dims: tuple[str, ...]
    sources: tuple[Stored, ...]


def smaller(
    plan: Plan,
    dims: Sequence[str],
    sources: Sequence[Stored],
    known: Mapping[Ref, Stored],
    left: Sequence[int],
    sinks: Mapping[int, Any],
) -> Smaller | None:
    """What is left of a job.

    Args:
      plan: of the whole program.
      dims: its streamed dimensions.
      sources: what its inputs are read from.
      known: values that are read.
      left: positions of the outputs that are not known.
      sinks: where these go, by their places in `left`.

    Returns:
      None where nothing less is left, or it cannot be streamed by itself: all of it is run then.
    """
    graph = plan.graph
    if plan.ops or plan.accumulate != read_accumulate(wide_enough(graph, dims)):
        # They are said of paths of the whole program; what a stream carries wide by itself is said of the rest anew.
        return None
    part = given(graph, known, [graph.outputs[number] for number in left])
    positions = {Ref(index, 0): n for n, index in enumerate(i for i, x in enumerate(graph.nodes) if x in graph.inputs)}
    if len(left) == len(graph.outputs) and not any(ref in known for ref in part.entering):
        return None
    read = tuple(known[ref] if ref in known else sources[positions[ref]] for ref in part.entering)
    names = _names(part.graph)
    if not names & {*dims}:
        return Smaller(part, None, (), read)
    entries = {dim: items for dim, items in plan.entries if dim in names}
    with suppress(PlanError):
        planned, streamed = read_plan(part.graph, entries, plan.mesh)
        planned.verify()
        named = {n: (part.graph.outputs[n][0], each) for n, each in sinks.items()}
        check_apart(split(planned.schedule, streamed), [node.name for node in part.graph.inputs], read, named, None)
        return Smaller(part, planned, streamed, read)
    return None


def _names(graph: Graph) -> set[str]:
    return {name for node in graph.nodes for kind in node.results for name in kind.names if name is not None}
