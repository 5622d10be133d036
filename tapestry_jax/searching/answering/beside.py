"""The candidates that were evaluated best beside the one that was found, and why each was not taken."""

from __future__ import annotations

from collections.abc import Iterable

from tapestry_jax.report.changed import is_near
from tapestry_jax.report.diff import asked_otherwise
from tapestry_jax.report.weighed import Candidate, Weighed
from tapestry_jax.searching.evaluated import Evaluated, estimate, held
from tapestry_jax.searching.problem import Problem

MOST = 8
"""So many are kept; where there are as many of both, half of them are cheaper than what was found."""
LONG = 1000
"""So long a schedule is not priced only to be told: of layers that stand one by one that takes half a second."""


def beside(problem: Problem, best: Evaluated) -> Weighed:
    """The best of what was evaluated; nothing is planned, proved or weighed for it.

    What is cheaper could not be taken, and all that is cheaper may be much: the cheapest of the rest are kept as well.
    Candidates with one schedule are one plan in several words, and count once.

    Args:
      problem: what was searched.
      best: what was found.
    """
    evaluated = (each for each in problem.evaluated.values() if isinstance(each, Evaluated))
    # What nothing was compared with has no price yet.
    told = (each for each in evaluated if each.is_priced or len(each.schedule.steps) < LONG)
    ranked = sorted(told, key=lambda each: each.seconds)
    passed = _several(best, (each for each in ranked if _is_cheaper(each, best)))
    rest = _several(best, (each for each in ranked if not _is_cheaper(each, best)))
    cheaper = max(MOST // 2, MOST - len(rest))
    chosen = [*passed[:cheaper], *rest][:MOST]
    return Weighed(problem.machine, problem.grad, tuple(_candidate(problem, best, each) for each in chosen))


def _is_cheaper(candidate: Evaluated, best: Evaluated) -> bool:
    return candidate.seconds < best.seconds and not is_near(candidate.seconds, best.seconds)


def _several(best: Evaluated, ranked: Iterable[Evaluated]) -> list[Evaluated]:
    """The first that are plans of their own."""
    found: list[Evaluated] = []
    for candidate in ranked:
        if not any(_is_same(candidate, other) for other in (best, *found)):
            found.append(candidate)
        if len(found) == MOST:
            break
    return found


def _is_same(one: Evaluated, other: Evaluated) -> bool:
    # What has another price has another schedule: that is told without comparing them.
    return is_near(one.seconds, other.seconds) and one.schedule == other.schedule


def _candidate(problem: Problem, best: Evaluated, each: Evaluated) -> Candidate:
    needed = problem.weighed.get(each.asked)
    otherwise = asked_otherwise(best.asked, each.asked)
    total = None if needed is None else needed.total
    return Candidate(tuple(map(str, otherwise)), each.seconds, total, _why(problem, best, each, total))


def _why(problem: Problem, best: Evaluated, each: Evaluated, total: int | None) -> str:
    memory = problem.memory
    if each.asked in problem.unproved:
        return "cannot be proved"
    if memory is not None and (needed := held(problem, each) if total is None else total) > memory:
        return f"does not fit: needs {'at least ' * (total is None)}{needed:,} B where there are {memory:,} B"
    if is_near(each.seconds, best.seconds):
        return "takes as long"
    if each.seconds > best.seconds:
        return f"dearer: {_longer(best.seconds, each.seconds)}"
    if memory is not None and total is None and estimate(problem, each) > memory:
        return f"does not fit by an estimate: needs about {estimate(problem, each):,} B where there are {memory:,} B"
    return "not weighed" if memory is not None and total is None else "not proposed by the method"


def _longer(least: float, seconds: float) -> str:
    """As a share, or as a multiple where it is much."""
    times = seconds / least if least else float("inf")
    return f"takes {times:.3g} times as long" if times >= 2 else f"takes {100 * (times - 1):.2g}% longer"
