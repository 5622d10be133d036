"""The error for a memory into which nothing fits: what is alive at the peak, and what would fit."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from combinators.errors import PlanError, message
from combinators.graphs import walk
from tapestry_jax.memory.predicted import MemoryNeeded
from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching.evaluated import Evaluated, Refused, estimate, weigh
from tapestry_jax.searching.problem import Problem

_WEIGHED, _LISTED = 4, 4
_MOST, _WORK = 12, 200
"""So many are weighed of short programs, as long as these have so many operations."""


def lacking(problem: Problem, ranked: Sequence[Evaluated], unseen: tuple[str, str] | None = None) -> PlanError:
    """The error; it tells of the plan with the least memory of those that were weighed.

    Args:
      problem: what was searched.
      ranked: what was proposed.
      unseen: what the method does not look at, and how the remedy begins then.
    """
    tried = [each for each in problem.evaluated.values() if isinstance(each, Evaluated)] or list(ranked)
    if not tried or problem.memory is None:
        refused = [each for each in problem.evaluated.values() if isinstance(each, Refused)]
        return PlanError(
            message(
                f"no plan of `{problem.graph.name}` was found: all that was tried is refused",
                *(line for each in refused[:1] for line in each.reason.splitlines()),
                remedy="Change what is fixed: the search adds to it, and changes nothing of it.",
            )
        )
    weighed = [each for each in tried if each.asked in problem.weighed] or [*itertools.islice(lightest(problem), 1)]
    least = min(weighed or tried, key=lambda each: (weigh(problem, each).total, each.seconds))
    needed = weigh(problem, least)
    limits, begin = ((), "Give") if unseen is None else (unseen[:1], unseen[1])
    return PlanError(
        message(
            f"no plan of `{problem.graph.name}` was found that fits into {problem.memory:,} B a device",
            f"the least that was found needs {needed.total:,} B, {needed.total - problem.memory:,} B more: "
            f"{shown(least.asked)}",
            *_alive(needed),
            *limits,
            remedy=f"{begin} memory={needed.total}, more devices, or fewer cells.",
        )
    )


def lightest(problem: Problem) -> Iterator[Evaluated]:
    """What was tried and not weighed, from what needs least memory by an estimate: a few, of short programs more."""
    most = max(_WEIGHED, min(_MOST, _WORK // max(sum(1 for _ in walk.operations(problem.graph)), 1)))
    tried = [each for each in problem.evaluated.values() if isinstance(each, Evaluated)]
    new = [each for each in tried if each.asked not in problem.weighed]
    yield from sorted(new, key=lambda each: estimate(problem, each))[:most]


def _alive(needed: MemoryNeeded) -> Iterator[str]:
    yield f"arguments {needed.arguments:,} B, results {needed.results:,} B, at the peak {needed.temporaries:,} B:"
    rows = sorted(Counter(needed.live).items(), key=lambda pair: -pair[0].bytes * pair[1])
    for live, times in rows[:_LISTED]:
        often = f" x{times}" if times > 1 else ""
        yield f"  {live.bytes * times:,} B  {live.type}{often}  {live.path or 'an argument'}"
    if len(rows) > _LISTED:
        yield f"  and {len(rows) - _LISTED} more"


def shown(asked: Asked) -> str:
    """What was asked for, in a line."""
    entries = [f"{name}: {', '.join(map(str, items)) or None}" for name, items in asked.entries]
    return "; ".join([*entries, *(f"remat of {name or 'all'}: {how}" for name, how in asked.remat)]) or "nothing placed"
