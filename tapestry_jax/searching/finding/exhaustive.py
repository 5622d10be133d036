"""Every candidate of a space, for small ones: the oracle that other methods are held against."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from combinators.errors import PlanError, message
from tapestry_jax.searching.candidates import asked_for
from tapestry_jax.searching.evaluated import Evaluated, Refused, evaluate
from tapestry_jax.searching.finding.rules import is_left_out
from tapestry_jax.searching.method import Bound, Proposal, Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Choice, Space

MOST = 20_000
"""More candidates than that are no small space."""


def exhaustive(problem: Problem, space: Space, seed: int, stop: Stop) -> Iterator[Proposal]:
    """Plan and price every candidate that excepts no operation; gives them from the cheapest on.

    Left out are candidates that cannot hold, or that another one says in fewer words (`rules`): the rest is planned.

    Raises:
      PlanError: where there are too many.
    """
    del seed
    space = space.plain
    if count(space, MOST + 1) > MOST:
        raise PlanError(
            message(
                f"the choices of `{problem.graph.name}` are too many to try all of them",
                f"{space.size:.3g} candidates, of which more than {MOST} may hold",
                remedy="Take another method, method='auto', or fix dimensions: entries={'embed': None}.",
            )
        )
    found: dict[int, Evaluated] = {}
    complete = True
    for choice in candidates(space):
        if stop():
            complete = False
            break
        asked = asked_for(problem, space, choice)
        candidate = asked if isinstance(asked, Refused) else evaluate(problem, asked)
        if isinstance(candidate, Evaluated):
            found[id(candidate)] = candidate
    if complete and found:
        yield Bound(min(each.seconds for each in found.values()), complete=True)
    for each in sorted(found.values(), key=lambda each: each.seconds):
        yield each.asked


def count(space: Space, most: int) -> int:
    """How many candidates are not left out, counted up to `most`."""
    return sum(1 for _ in itertools.islice(candidates(space), most))


def candidates(space: Space, before: Choice = ()) -> Iterator[Choice]:
    """The candidates that are not left out; what is left out early takes all that begins so with it."""
    if len(before) == len(space.variables):
        yield before
        return
    rest = len(space.variables) - len(before) - 1
    for value in range(len(space.variables[len(before)].values)):
        choice = (*before, value)
        if not value or not is_left_out(space, (*choice, *(0,) * rest)):
            yield from candidates(space, choice)
