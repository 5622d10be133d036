"""What methods that walk compare: the logarithm of a price, and what lacks in memory on top."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching.candidates import asked_for, choice_of
from tapestry_jax.searching.evaluated import Evaluated, Refused, evaluate, fits, held, weigh
from tapestry_jax.searching.finding.altered import asked_around
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Choice, Space

_LACKING = 4.0
"""What twice the memory that there is costs, as if it took `2 ** 4` times as long."""


class Energies:
    """The energies of candidates, each found once, and the best so far.

    Attributes:
      problem: what is searched.
      space: its choices.
      start: where to begin.
      best: the candidate of least energy.
      fitting: the cheapest of those that were weighed and fit; of all, where memory has no bound.
      weight_of_time: 0 where memory alone counts.
      lowest: the least energy so far, of others that were known before too: what is above it is not weighed.
    """

    def __init__(self, problem: Problem, space: Space, lowest: float = math.inf) -> None:
        self.problem, self.space = problem, space
        self.start = self.best = space.nothing if problem.start is None else choice_of(space, problem.start)
        self.fitting: Choice | None = None
        self.weight_of_time = 1.0
        self._found: dict[Choice, Evaluated | None] = {}
        # By what is weighed, how far the guess was off; that it is right is where it begins.
        self._ratios: dict[Asked | None, float] = {None: 0.0}
        self._before = len(problem.evaluated)
        self.lowest = lowest

    @property
    def tried(self) -> int:
        """How many candidates were planned, or refused by planning; several choices may say the same."""
        return len(self.problem.evaluated) - self._before

    def of(self, choice: Choice) -> float:
        """The energy of a candidate; infinite where planning refuses it."""
        candidate = self.candidate(choice)
        if candidate is None:
            return math.inf
        energy = self._energy(candidate)
        if energy < self.lowest and self._is_new(candidate):
            # What would be the best is weighed, and the estimates of others corrected by what comes out.
            weigh(self.problem, candidate)
            energy = self._energy(candidate)
        self._note(choice, candidate)
        if energy < self.lowest:
            self.lowest, self.best = energy, choice
        return energy

    def candidate(self, choice: Choice) -> Evaluated | None:
        """What a candidate comes to; None where planning refuses it."""
        if choice not in self._found:
            self._found[choice] = self._planned(choice)
        return self._found[choice]

    def ranked(self, most: int) -> Iterator[Asked]:
        """The cheapest that fits, then others by energy: as small as the guess was most too large so far."""
        fitting = None if self.fitting is None else self.candidate(self.fitting)
        if fitting is not None:
            yield fitting.asked
        found = {id(each): each for each in self._found.values() if each is not None}
        factor = math.exp(min(self._ratios.values()))
        ranked = sorted(found.values(), key=lambda each: self._energy(each, factor))
        yield from (each.asked for each in ranked[:most])

    def _planned(self, choice: Choice) -> Evaluated | None:
        base = self.space.base
        asked = (
            asked_for(self.problem, self.space, choice)
            if base is None
            else asked_around(self.problem, self.space, base, choice)
        )
        found = asked if isinstance(asked, Refused) else evaluate(self.problem, asked)
        return found if isinstance(found, Evaluated) else None

    def _energy(self, candidate: Evaluated, factor: float | None = None) -> float:
        time = self.weight_of_time * math.log(max(candidate.seconds, 1e-12))
        if self.problem.memory is None:
            return time
        return time + _LACKING * max(0.0, math.log(max(self._memory(candidate, factor), 1) / self.problem.memory))

    def _memory(self, candidate: Evaluated, factor: float | None) -> float:
        if not self._is_new(candidate):
            return weigh(self.problem, candidate).total
        # The middle one: of what is far off once, such as one kind of ring, nothing follows for others.
        if factor is None:
            factor = math.exp(statistics.median(self._ratios.values()))
        return max(factor * candidate.guessed, held(self.problem, candidate))

    def _is_new(self, candidate: Evaluated) -> bool:
        return self.problem.memory is not None and candidate.asked not in self.problem.weighed

    def _note(self, choice: Choice, candidate: Evaluated) -> None:
        """Keep what is the cheapest that fits; what was not weighed is not known to."""
        if self._is_new(candidate):
            return
        if self.problem.memory is not None and candidate.asked not in self._ratios:
            guess = max(candidate.guessed, held(self.problem, candidate), 1)
            self._ratios[candidate.asked] = math.log(max(weigh(self.problem, candidate).total, 1) / guess)
        before = None if self.fitting is None else self.candidate(self.fitting)
        if (before is None or candidate.seconds < before.seconds) and fits(self.problem, candidate):
            self.fitting = choice
