"""Layers that are computed again and have a ring: the same where what came round it is sent round once more."""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Ring
from tapestry_jax.planning.entries.remat import RINGS
from tapestry_jax.searching.evaluated import Evaluated, evaluate
from tapestry_jax.searching.problem import Problem


def rings_again(problem: Problem, candidate: Evaluated) -> Evaluated | None:
    """The candidate whose layers keep nothing of what came round a ring: less memory, and never less time.

    None where memory has no bound, the user said what is computed again, or nothing that is has a ring.
    """
    asked = candidate.asked
    chosen = [pair for pair in asked.remat if pair[1] is True and pair not in problem.fixed.remat]
    if problem.memory is None or not chosen or not has_rings(asked):
        return None
    again = tuple((scope, RINGS if (scope, how) in chosen else how) for scope, how in asked.remat)
    found = evaluate(problem, replace(asked, remat=again))
    return found if isinstance(found, Evaluated) else None


def has_rings(asked: Asked) -> bool:
    """Whether some dimension goes round a ring."""
    entries = (*asked.entries, *(pair for _, own in asked.ops for pair in own))
    return any(isinstance(item, Ring) for _, items in entries for item in items)
