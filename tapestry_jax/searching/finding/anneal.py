"""Simulated annealing: candidates one move apart, dearer ones taken less and less often."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from tapestry_jax.searching.finding.descent import descend
from tapestry_jax.searching.finding.energy import Energies
from tapestry_jax.searching.finding.moves import near
from tapestry_jax.searching.finding.starts import begin
from tapestry_jax.searching.method import Proposal, Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Choice, Space

TRIED = 400
"""So many candidates are planned, unless the time is over before."""
_HOT, _COLD = 0.3, 0.005
"""Temperatures: a candidate that takes 30% longer is taken about every third time at first, hardly ever at last."""
_SHARE = 0.75
"""The share of candidates that a descent may plan before the annealing begins."""
_FIRST, _JUDGED = 0.25, 0.6
"""The share of candidates that are tried to begin from, and with those by which these are judged."""
_LATE, _EXCEPTED = 0.6, 0.3
"""When exceptions begin to be tried, and in which share of the moves: before, they hide what names would do better."""
_IDLE = 10
"""So many moves in a row that lead to known candidates, and the walk goes on from elsewhere."""
_STUCK = 10
"""So many moves for each candidate that may be planned end the search: all of a small space is known."""
_PROPOSED = 8


def anneal(problem: Problem, space: Space, seed: int, stop: Stop) -> Iterator[Proposal]:
    """Walk downhill first, then at random at falling temperature, and downhill again from the best.

    What is compared is the logarithm of the price; what does not fit into memory pays for it. What would be the best is
    weighed. Without a time limit the same seed gives the same plan.
    """
    rng = Random(seed)
    known = Energies(problem, space)
    if space.variables:
        _search(known, rng, stop)
        if known.fitting is None and not stop():
            # Nothing fits so far: what needs least memory is looked for, whatever it takes.
            known.weight_of_time = 0.0
            descend(known, rng, stop, known.best, 2 * TRIED)
    else:
        known.of(space.nothing)
    yield from known.ranked(_PROPOSED)


def _search(known: Energies, rng: Random, stop: Stop) -> None:
    begin(known, rng, stop, _FIRST * TRIED, _JUDGED * TRIED)
    descend(known, rng, stop, known.best, int(_SHARE * TRIED))
    here, moves, idle, planned = known.best, 0, 0, known.tried
    while known.tried < TRIED and moves < _STUCK * TRIED and not stop():
        moves += 1
        done = max((known.tried - planned) / max(TRIED - planned, 1), moves / (_STUCK * TRIED))
        heat = _HOT * (_COLD / _HOT) ** done
        there = near(known.space, here, rng, excepted=_EXCEPTED if done > _LATE else 0.0)
        before = known.tried
        rise = known.of(there) - known.of(here)
        if rise <= 0 or rng.random() < math.exp(-rise / heat):
            here = there
        idle = idle + 1 if known.tried == before else 0
        if idle > _IDLE:
            # All that is near is known: on from somewhere else.
            here, idle = _kicked(known, rng), 0
    descend(known, rng, stop, known.best, TRIED + TRIED // 4)


def _kicked(known: Energies, rng: Random) -> Choice:
    """A few moves away from the best, or from nothing."""
    here = known.best if rng.random() < 0.5 else known.space.nothing
    for _ in range(rng.randint(2, 4)):
        here = near(known.space, here, rng, excepted=0.0)
    return here
