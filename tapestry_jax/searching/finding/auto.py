"""The method that a search takes by itself: all candidates of few, a program for many operations, or a walk."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from combinators.graphs import walk
from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching.evaluated import Evaluated, estimate, evaluate, fits
from tapestry_jax.searching.exact.highs import is_installed
from tapestry_jax.searching.exact.milp import milp
from tapestry_jax.searching.finding.anneal import anneal
from tapestry_jax.searching.finding.exhaustive import count, exhaustive
from tapestry_jax.searching.finding.improved import improved
from tapestry_jax.searching.method import Proposal, Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space

FEW = 300
MANY = 20
"""Of more operations than these walks see too few candidates: these are solved for, and improved from there."""


def auto(problem: Problem, space: Space, seed: int, stop: Stop) -> Iterable[Proposal]:
    """Try all candidates that except no operation, if there are few; solve what has many operations; else anneal."""
    if count(space.plain, FEW + 1) <= FEW:
        return exhaustive(problem, space, seed, stop)
    operations = sum(1 for _ in itertools.islice(walk.operations(problem.graph), MANY + 1))
    if not is_installed():
        return anneal(problem, space, seed, stop)
    return (_solved if operations > MANY else _walked)(problem, space, seed, stop)


def _walked(problem: Problem, space: Space, seed: int, stop: Stop) -> Iterator[Proposal]:
    """What walks find; where the cheapest of it does not fit into memory, what the integer program finds as well."""
    cheapest = fitting = math.inf
    for proposal in anneal(problem, space, seed, stop):
        yield proposal
        candidate = evaluate(problem, proposal) if isinstance(proposal, Asked) else None
        if isinstance(candidate, Evaluated):
            cheapest = min(cheapest, candidate.seconds)
            fitting = min(fitting, candidate.seconds) if fits(problem, candidate) else fitting
    if fitting > cheapest and not stop():
        yield from _solved(problem, space, seed, stop, walks=False)


def _solved(problem: Problem, space: Space, seed: int, stop: Stop, *, walks: bool = True) -> Iterator[Proposal]:
    """What the integer program finds, and what is near it that this does not know; a walk if nothing fits."""
    found: list[Evaluated] = []
    for proposal in milp(problem, space, seed, stop):
        yield proposal
        candidate = None if not isinstance(proposal, Asked) else evaluate(problem, proposal)
        found += [candidate] if isinstance(candidate, Evaluated) else []
    fitting = [each for each in found if fits(problem, each)]
    best = min(fitting or found, key=lambda each: each.seconds if fitting else estimate(problem, each), default=None)
    if best is not None and not stop():
        for proposal in improved(problem, space, best.asked, stop):
            yield proposal
            candidate = evaluate(problem, proposal)
            # One that fits is enough; the best of them is weighed by whoever takes the proposals.
            if not fitting and isinstance(candidate, Evaluated) and fits(problem, candidate):
                fitting.append(candidate)
    if walks and not fitting and not stop():
        yield from anneal(problem, space, seed, stop)
