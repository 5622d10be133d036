"""What a candidate comes to: its schedule, its price, and the memory that it needs, each found once."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from combinators.errors import PlanError
from combinators.frozen import dataclass
from tapestry_jax.memory.predicted import MemoryNeeded, memory_needed, stored
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.planned import planned
from tapestry_jax.planning.pricing.priced import price
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.searching.guessed import guessed
from tapestry_jax.searching.problem import Problem


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A candidate that can be planned.

    Attributes:
      asked: what would be written by hand.
      schedule: the steps of one device.
      problem: what is searched.
    """

    asked: Asked
    schedule: Schedule = field(repr=False)
    problem: Problem = field(repr=False)

    @cached_property
    def seconds(self) -> float:
        """Exactly those of `plan.cost`; found when they are asked for.

        Raises:
          PlanError: when the price is no number.
          MeshError: when the mesh does not fill the machine.
        """
        known, schedule = self.problem.priced, self.schedule
        # Schedules that are known are kept, and each of them has one identity.
        if id(schedule) not in known:
            known[id(schedule)] = schedule, price(schedule, self.problem.machine, self.problem.grad).seconds
        return known[id(schedule)][1]

    def priced(self) -> Evaluated:
        """The same, whose price is known from here on."""
        _ = self.seconds
        return self

    @property
    def is_priced(self) -> bool:
        """Whether its price is known."""
        return id(self.schedule) in self.problem.priced

    @cached_property
    def guessed(self) -> int:
        """About how much memory a device needs."""
        return guessed(self.schedule, self.problem.grad)


@dataclass(frozen=True)
class Refused:
    """A candidate that cannot be planned.

    Attributes:
      asked: what would be written by hand.
      reason: what planning says to it.
    """

    asked: Asked
    reason: str


def evaluate(problem: Problem, asked: Asked, like: Evaluated | None = None) -> Evaluated | Refused:
    """Plan a candidate. Nothing is traced, and what was evaluated before is remembered.

    Args:
      problem: what is searched.
      asked: the candidate.
      like: another one, which may have the same schedule: then it has the same price.
    """
    found = problem.evaluated.get(asked)
    if found is None:
        found = problem.evaluated[asked] = _evaluate(problem, asked, like)
    return found


def _evaluate(problem: Problem, asked: Asked, like: Evaluated | None) -> Evaluated | Refused:
    try:
        schedule = planned(problem.graph, problem.mesh, asked, problem.schedules)
    except PlanError as error:
        return Refused(asked, str(error))
    if like is not None and id(schedule) not in problem.priced and schedule == like.schedule:
        return Evaluated(asked, like.schedule, problem)
    return Evaluated(asked, schedule, problem)


def weigh(problem: Problem, candidate: Evaluated) -> MemoryNeeded:
    """The memory of a device, exactly that of `plan.memory`: the program is traced, so few candidates are weighed."""
    found = problem.weighed.get(candidate.asked)
    if found is None:
        found = problem.weighed[candidate.asked] = _weigh(problem, candidate)
    return found


def _weigh(problem: Problem, candidate: Evaluated) -> MemoryNeeded:
    """The same, of a candidate that was not weighed; one schedule may be asked for in several words."""
    # What has another price has another schedule: that is told without comparing them.
    alike = problem.weighed_at.setdefault(candidate.seconds, [])
    found = next((needed for schedule, needed in alike if schedule == candidate.schedule), None)
    if found is None:
        found = memory_needed(candidate.schedule, problem.mesh, problem.grad)
        alike.append((candidate.schedule, found))
    return found


def held(problem: Problem, candidate: Evaluated) -> int:
    """Bytes of arguments and results of a device: a bound on its memory from below, which traces nothing."""
    return sum(stored(candidate.schedule, problem.grad))


def estimate(problem: Problem, candidate: Evaluated) -> int:
    """About how much memory a device needs, by the layouts of values alone; exactly, where it was weighed."""
    known = problem.weighed.get(candidate.asked)
    if known is not None:
        return known.total
    return max(candidate.guessed, held(problem, candidate))


def fits(problem: Problem, candidate: Evaluated) -> bool:
    """Whether the memory of a device is enough, by `plan.memory`."""
    if problem.memory is None:
        return True
    return held(problem, candidate) <= problem.memory and weigh(problem, candidate).total <= problem.memory
