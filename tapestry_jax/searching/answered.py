"""The answer to one problem: kept from before, or searched for."""

from __future__ import annotations

from tapestry_jax.plan import Plan, plan_of
from tapestry_jax.searching.answering.best import Best, best_of
from tapestry_jax.searching.answering.collected import seldom_collected
from tapestry_jax.searching.answering.progress import progress_of
from tapestry_jax.searching.choices import space_of
from tapestry_jax.searching.method import Stop
from tapestry_jax.searching.methods import METHODS, UNSEEN
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.question.kept import keep, kept, key_of
from tapestry_jax.searching.question.read import Question


def answer(question: Question, problem: Problem) -> Best:
    """What is kept under this question, else what its method finds; that is kept, unless it was interrupted.

    Raises:
      PlanError: when nothing fits, or nothing can be planned.
      KeyboardInterrupt: when nothing has been found yet.
    """
    if question.directory is None:
        return _best(question, problem)
    key = key_of(problem, question.method, question.seed, question.limit)
    known = kept(question.directory, key, problem)
    if known is not None:
        return Best(known, None)
    best = _best(question, problem)
    if not best.interrupted:
        keep(question.directory, key, plan_for(problem, best))
    return best


def plan_for(problem: Problem, best: Best) -> Plan:
    """The plan of an answer."""
    found = best.found
    return plan_of(
        problem.graph, problem.mesh, found.asked, found.schedule, best.gap, best.weighed, machine=problem.machine
    )


def _best(question: Question, problem: Problem) -> Best:
    progress = progress_of(problem, wanted=question.progress)
    stop = Stop(question.limit, tell=progress)
    try:
        with seldom_collected():
            proposals = METHODS[question.method](problem, space_of(problem), question.seed, stop)
            return best_of(problem, proposals, UNSEEN.get(question.method))
    finally:
        if progress is not None:
            progress.close()
