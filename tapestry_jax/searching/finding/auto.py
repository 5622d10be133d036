"""The method that a search takes by itself: all candidates where they are few, else a walk."""

from __future__ import annotations

from collections.abc import Iterable

from tapestry_jax.searching.finding.anneal import anneal
from tapestry_jax.searching.finding.exhaustive import count, exhaustive
from tapestry_jax.searching.method import Proposal, Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space

FEW = 300


def auto(problem: Problem, space: Space, seed: int, stop: Stop) -> Iterable[Proposal]:
    """Try all candidates that except no operation, if there are few; else anneal."""
    method = exhaustive if count(space.plain, FEW + 1) <= FEW else anneal
    return method(problem, space, seed, stop)
