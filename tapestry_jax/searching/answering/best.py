"""The best of what a method proposes: priced and weighed exactly, and proved."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable

from combinators.errors import PlanError
from combinators.frozen import dataclass
from combinators.graphs import walk
from tapestry_jax.planning.proof.prove import prove
from tapestry_jax.report.weighed import Weighed
from tapestry_jax.searching.answering.beside import beside
from tapestry_jax.searching.answering.lacking import lacking, lightest, shown
from tapestry_jax.searching.answering.rings import rings_again
from tapestry_jax.searching.answering.shortened import shortened
from tapestry_jax.searching.evaluated import Evaluated, estimate, evaluate, fits, held
from tapestry_jax.searching.method import Bound, Proposal
from tapestry_jax.searching.problem import Problem

WEIGHED = 12
"""So many candidates are weighed before those come first that need least memory by an estimate."""
WORK = 400
"""Of short programs more: until these have so many operations."""


@dataclass(frozen=True, eq=False)
class Best:
    """What a search comes to.

    Attributes:
      found: the cheapest candidate that fits.
      gap: the share of its price by which another could be cheaper at most; None where that is not known.
      interrupted: whether it is the best so far alone.
      weighed: what else was evaluated; None of an answer from before.
    """

    found: Evaluated
    gap: float | None
    interrupted: bool = False
    weighed: Weighed | None = None


def best_of(problem: Problem, proposals: Iterable[Proposal], unseen: tuple[str, str] | None = None) -> Best:
    """The cheapest of what was proposed that fits, proved, and says no more than has an effect.

    On an interrupt, of what was proposed or tried until then.

    Args:
      problem: what is searched.
      proposals: of a method.
      unseen: what the method does not look at, and what else to try, for the error.

    Raises:
      PlanError: when nothing fits, or nothing can be planned; with what is alive at the peak, and what would fit.
      KeyboardInterrupt: when nothing has been found yet.
    """
    bounds: list[Bound] = []
    found: dict[int, Evaluated] = {}
    # What adds nothing to what is fixed, and what the user had, are candidates whatever the method proposes.
    own = (problem.fixed, *(() if problem.start is None else (problem.start,)))
    interrupted = False
    try:
        for proposal in itertools.chain(own, proposals):
            if isinstance(proposal, Bound):
                bounds.append(proposal)
            elif isinstance(candidate := evaluate(problem, proposal), Evaluated) and _may_fit(problem, candidate):
                found[id(candidate)] = candidate.priced()
                if (again := rings_again(problem, candidate)) is not None:
                    found[id(again)] = again.priced()
    except KeyboardInterrupt:
        interrupted = True
        evaluated = (each for each in problem.evaluated.values() if isinstance(each, Evaluated))
        found |= {id(each): each for each in evaluated if _may_fit(problem, each)}
        if not found:
            raise
    ranked = sorted(found.values(), key=_rank)
    try:
        best, skipped = _first(problem, ranked)
    except KeyboardInterrupt:
        interrupted = skipped = True
        best = _known(problem, ranked)
        if best is None:
            raise
    if best is None:
        best, skipped = _tried(problem), True
    if best is None:
        raise lacking(problem, ranked, unseen)
    try:
        for shorter in shortened(problem, best, lambda other: _is_proved(problem, other)):
            best = shorter
    except KeyboardInterrupt:
        interrupted = True
    return Best(best, _gap(best, bounds, complete=not skipped), interrupted, beside(problem, best))


def _known(problem: Problem, ranked: list[Evaluated]) -> Evaluated | None:
    """After an interrupt of the weighing: the first that is known to fit; else one that should, and does."""
    known = [each for each in ranked if each.asked in problem.weighed and fits(problem, each)]
    memory = problem.memory
    likely = (each for each in ranked if memory is None or estimate(problem, each) <= memory)
    for candidate in (*known, *itertools.islice(likely, 0 if known else WEIGHED)):
        if fits(problem, candidate) and _is_proved(problem, candidate):
            return candidate
    return None


def _tried(problem: Problem) -> Evaluated | None:
    """Where nothing that was proposed fits: the first that does of the lightest that were tried on the way."""
    if problem.memory is None:
        return None
    light = (each for each in lightest(problem) if _may_fit(problem, each))
    return next((each for each in light if fits(problem, each) and _is_proved(problem, each)), None)


def _may_fit(problem: Problem, candidate: Evaluated) -> bool:
    """Whether arguments and results alone do not refuse it: what they refuse needs no price."""
    return problem.memory is None or held(problem, candidate) <= problem.memory


def _rank(candidate: Evaluated) -> tuple[float, int]:
    """By price; of those that cost the same, what says least."""
    asked = candidate.asked
    said = (*asked.entries, *(pair for _, entries in (*asked.ops, *asked.inputs) for pair in entries), *asked.remat)
    return float(f"{candidate.seconds:.9g}"), len(said) + sum(len(items) for _, items in asked.entries)


def _first(problem: Problem, ranked: list[Evaluated]) -> tuple[Evaluated | None, bool]:
    """The first that fits and is proved, and whether a cheaper one was passed over without weighing it."""
    heavy, skipped = 0, False
    most = max(WEIGHED, WORK // max(sum(1 for _ in walk.operations(problem.graph)), 1))
    for candidate in ranked:
        known = candidate.asked in problem.weighed
        if heavy >= most and not known and problem.memory is not None and estimate(problem, candidate) > problem.memory:
            skipped = True
            continue
        if not fits(problem, candidate):
            heavy += not known
        elif _is_proved(problem, candidate):
            return candidate, skipped
        else:
            skipped = True
    return None, skipped


def _is_proved(problem: Problem, candidate: Evaluated) -> bool:
    """Whether the proof holds; a plan that planning gives and the proof refuses is a defect, and is told."""
    try:
        prove(candidate.schedule)
    except PlanError as error:
        problem.unproved.add(candidate.asked)
        what = f"tp.search passes over a plan of `{problem.graph.name}` that cannot be proved; report it"
        warnings.warn(f"{what}: {shown(candidate.asked)}: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


def _gap(best: Evaluated, bounds: list[Bound], *, complete: bool) -> float | None:
    """Zero where all that is cheaper was seen not to fit."""
    if not bounds:
        return None
    if complete and any(bound.complete for bound in bounds):
        return 0.0
    bound = max(bound.seconds for bound in bounds)
    return max(0.0, 1 - bound / best.seconds) if best.seconds else 0.0
