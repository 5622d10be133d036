"""What the backward pass computes again: written into the schedule's repetitions.

A loop over layers keeps what its backward pass needs of every turn, which is nearly all that a turn makes. A turn that
is computed again is kept as what it starts from, what other devices sent into it, and the results of operations that
the plan wants to keep.
"""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.planning.derivatives.gradients import known_by
from tapestry_jax.planning.entries.remat import KEPT, Remat, wanted_remat
from tapestry_jax.planning.scheduling.received import is_received
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule, Step


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
            again = bool(chosen) and scope != around and step.length > 1
            body = _marked(step.body, remat, scope if again else around)
            keeps = chosen if again and isinstance(chosen, str) else ""
            return replace(step, body=_keeping(body, keeps) if keeps else body, remat=again, keeps=keeps)
        case Region():
            return replace(step, body=_marked(step.body, remat, around))
        case _:
            return step


def _keeping(schedule: Schedule, keeps: str) -> Schedule:
    """The turn of a repetition, whose operations are kept that `keeps` speaks of.

    What loops in time run is not: they are there so that it need not be. What other devices sent is kept by itself.
    """
    return replace(schedule, steps=tuple(_kept(schedule, step, keeps) for step in schedule.steps))


def _kept(schedule: Schedule, step: Step, keeps: str) -> Step:
    match step:
        case Repeat() if not step.remat:
            return replace(step, body=_keeping(step.body, keeps))
        case Run() if not step.carried and not is_received(schedule, step):
            return replace(step, kept=known_by(schedule.graph, step.node, KEPT[keeps]))
        case _:
            return step
