"""What the backward pass computes again: written into the schedule's repetitions.

A loop over layers keeps what its backward pass needs of every turn, which is nearly all that a turn makes. A turn that
is computed again is kept as what it starts from, and what other devices sent into it.
"""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.planning.entries.remat import Remat, wanted_remat
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Schedule, Step


def rematerialised(schedule: Schedule, remat: Remat) -> Schedule:
    """The same schedule, whose repetitions in the scopes of `remat` are computed again, one turn at a time.

    Of repetitions inside one another the outermost is, and an inner one where a path of its own asks for it. One turn
    alone is not: when its gradient begins, all that it made is at hand, or a loop in time around it computes it again.
    """
    return _marked(schedule, remat, None) if remat else schedule


def _marked(schedule: Schedule, remat: Remat, around: str | None) -> Schedule:
    return replace(schedule, steps=tuple(_step(step, remat, around) for step in schedule.steps))


def _step(step: Step, remat: Remat, around: str | None) -> Step:
    """A step, inside of a repetition that the scope `around` has computed again."""
    match step:
        case Repeat():
            scope, chosen = wanted_remat(step.path, remat)
            again = chosen and scope != around and step.length > 1
            return replace(step, body=_marked(step.body, remat, scope if again else around), remat=again)
        case Region():
            return replace(step, body=_marked(step.body, remat, around))
        case _:
            return step
