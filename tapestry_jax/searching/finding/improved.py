"""Downhill from what another method found, over what its model does not know: time, rings, halos, stages."""

from __future__ import annotations

import math
from collections.abc import Iterator

from combinators.graphs import walk
from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching.finding.altered import around
from tapestry_jax.searching.finding.descent import descend
from tapestry_jax.searching.finding.energy import Energies
from tapestry_jax.searching.finding.moves import moved, steps
from tapestry_jax.searching.finding.staged import staged
from tapestry_jax.searching.finding.starts import filled
from tapestry_jax.searching.method import Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Choice, Space

WORK = 1000
"""So many operations are planned at most, those of all candidates together: few candidates of long programs. As many
again for stages, where these may pay."""
_PROPOSED = 2


def improved(problem: Problem, space: Space, base: Asked, stop: Stop) -> Iterator[Asked]:
    """Candidates near one that another method found, the cheapest that fits first.

    Each thing is tried once before any is pursued: what takes least time then is looked at first.

    Args:
      problem: what is searched.
      space: its choices.
      base: what was found.
      stop: when to end.
    """
    near = around(problem, space, base)
    known = Energies(problem, near)
    most = WORK // max(sum(1 for _ in walk.operations(problem.graph)), 1)
    known.of(near.nothing)
    descend(known, None, stop, known.best, most, _by_promise(known, stop, most))
    yield from known.ranked(_PROPOSED)
    yield from staged(problem, space, known.lowest, stop, most)


def _by_promise(known: Energies, stop: Stop, most: int) -> list[int]:
    """The variables, those first of which the first value costs least."""
    near, found = known.space, dict[int, float]()
    for at in range(len(near.variables)):
        energies = [math.inf]
        for there in _first(near, at):
            if stop() or known.tried >= most:
                break
            energies.append(known.of(there))
        found[at] = min(energies)
    return [at for at in sorted(found, key=lambda at: found[at]) if math.isfinite(found[at])]


def _first(near: Space, at: int) -> Iterator[Choice]:
    """The first value of a variable; stages with each of what may flow through them."""
    one = next(steps(near, near.nothing, at), moved(near.nothing, at, 0))
    yield from filled(near, one) if near.variables[at].kind == "axes" else (one,)
