"""Every candidate of a space, for small ones: the oracle that other methods are held against."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tapestry_jax.searching.candidates import asked_for
from tapestry_jax.searching.evaluated import Evaluated, Refused, evaluate
from tapestry_jax.searching.method import Bound, Proposal, Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space


def exhaustive(problem: Problem, space: Space, seed: int, stop: Stop) -> Iterator[Proposal]:
    """Plan and price every candidate; gives them from the cheapest on."""
    del seed
    found: dict[int, Evaluated] = {}
    for choice in itertools.product(*(range(len(each.values)) for each in space.variables)):
        if stop():
            break
        asked = asked_for(problem, space, choice)
        candidate = asked if isinstance(asked, Refused) else evaluate(problem, asked)
        if isinstance(candidate, Evaluated):
            found[id(candidate)] = candidate
    else:
        if found:
            yield Bound(min(each.seconds for each in found.values()))
    for each in sorted(found.values(), key=lambda each: each.seconds):
        yield each.asked
