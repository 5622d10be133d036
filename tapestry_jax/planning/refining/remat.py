"""What the backward pass computes again: written into the schedule's repetitions, and beside its steps.

A loop over layers keeps what its backward pass needs of every turn, which is nearly all that a turn makes. A turn that
is computed again is kept as what it starts from, what other devices sent into it, and the results of operations that
the plan wants to keep. So it is with steps outside of loops, those of one layer after the other, which are no turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from combinators.errors import PlanError, message
from tapestry_jax.planning.derivatives.gradients import known_by
from tapestry_jax.planning.entries.remat import KEPT, RINGS, Remat, Units, wanted_remat
from tapestry_jax.planning.geometry.changes import Gather
from tapestry_jax.planning.geometry.time_axis import ring_of
from tapestry_jax.planning.scheduling.received import is_received
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Run, Schedule, Step, Unit


def rematerialised(schedule: Schedule, remat: Remat) -> Schedule:
    """The same schedule, whose repetitions in the scopes of `remat` are computed again, one turn at a time.

    So are layers and scopes that are no repetitions, each by itself (`Schedule.again`).
    Of repetitions inside one another the outermost is, and an inner one where a path of its own asks for it. One turn
    alone is not: when its gradient begins, all that it made is at hand, or a loop in time around it computes it again.

    Raises:
      PlanError: where rings are to turn again, and there is none.
    """
    if not remat:
        return schedule
    marked = _marked(schedule, remat, None)
    if any(chosen == RINGS for _, chosen in remat) and not _turns_rings(marked, ""):
        raise PlanError(
            message(
                f"remat keeps {RINGS!r}, and no ring stands in layers that are computed again",
                "layers that stand one by one have theirs beside them, and what came round is kept",
                remedy="Stack the layers (tp.nnx.Stack, tp.stack) and let a dimension go round, or write True.",
            )
        )
    return _with_units(marked, remat, Units.of(schedule.graph))


def _turns_rings(schedule: Schedule, keeps: str) -> bool:
    """Whether a ring stands in layers that turn theirs again; `keeps` says what those around keep."""
    for step in schedule.steps:
        if isinstance(step, Region) and keeps == RINGS and ring_of(step.axis) is not None:
            return True
        inside = step.keeps if isinstance(step, Repeat) and step.remat else keeps
        if isinstance(step, Repeat | Region) and _turns_rings(step.body, inside):
            return True
    return False


def _marked(schedule: Schedule, remat: Remat, around: str | None) -> Schedule:
    return replace(schedule, steps=tuple(_step(step, remat, around) for step in schedule.steps))


def _step(step: Step, remat: Remat, around: str | None) -> Step:
    """A step, inside of a repetition that the scope `around` has computed again."""
    match step:
        case Repeat():
            scope, chosen = wanted_remat(step.path, remat)
            again = bool(chosen) and scope != around and step.length > 1 and not step.until
            body = _marked(step.body, remat, scope if again else around)
            keeps = chosen if again and isinstance(chosen, str) else ""
            return replace(step, body=_keeping(body, keeps) if keeps else body, remat=again, keeps=keeps)
        case Region():
            return replace(step, body=_marked(step.body, remat, around))
        case _:
            return step


def _keeping(schedule: Schedule, keeps: str) -> Schedule:
    """The turn of a repetition, whose operations are kept that `keeps` speaks of.

    What loops in time run is not: they are there so that it need not be. What other devices sent is kept by itself, but
    for what goes round rings where these turn again.
    """
    if keeps == RINGS:
        return schedule
    return replace(schedule, steps=tuple(_kept(schedule, step, keeps) for step in schedule.steps))


def _kept(schedule: Schedule, step: Step, keeps: str) -> Step:
    match step:
        case Repeat() if not step.remat:
            return replace(step, body=_keeping(step.body, keeps))
        case Run() if not step.carried and not is_received(schedule, step):
            return replace(step, kept=known_by(schedule.graph, step.node, KEPT[keeps]))
        case _:
            return step


def _with_units(schedule: Schedule, remat: Remat, units: Units, *, outermost: bool = True) -> Schedule:
    """The same schedule with its units; in loops in time too, which run the steps of the program."""
    steps = list(schedule.steps)
    found: list[Unit] = []
    end = 0
    for path, run in groupby(schedule.steps, key=lambda step: _unit_of(step, remat, units)):
        first, end = end, end + len([*run])
        if path is None or not any(isinstance(step, Run) for step in steps[first:end]):
            continue
        scope, keeps = path
        found.append(Unit(first, end, scope, keeps))
        if keeps:
            steps[first:end] = [_kept(schedule, step, keeps) for step in steps[first:end]]
    inner = [
        replace(step, body=_with_units(step.body, remat, units, outermost=False)) if isinstance(step, Region) else step
        for step in steps
    ]
    marked = replace(schedule, steps=tuple(inner), again=tuple(found))
    return _gathering_again(marked) if outermost else marked


def _unit_of(step: Step, remat: Remat, units: Units) -> tuple[str, str] | None:
    """The unit in which a step stands, and what it keeps."""
    scope, chosen = wanted_remat(step.path, remat)
    path = units.around(step.path, scope) if scope is not None and chosen else None
    return None if path is None else (path, chosen if isinstance(chosen, str) and chosen != RINGS else "")


def _gathering_again(schedule: Schedule) -> Schedule:
    """The same schedule, whose units bring arguments of the program together again that they alone read.

    In loops in time arguments are brought together before the loop, for all of its turns.
    """
    again = set(_gathers(schedule))
    steps = (replace(step, again=True) if number in again else step for number, step in enumerate(schedule.steps))
    return replace(schedule, steps=tuple(steps)) if again else schedule


def _gathers(schedule: Schedule) -> Iterator[int]:
    arguments = set(schedule.inputs)
    for unit, own in zip(schedule.again, schedule.made_for_itself(), strict=True):
        for number in range(unit.first, unit.end):
            step = schedule.steps[number]
            if not (isinstance(step, Convert) and arguments.issuperset(step.operands) and own.issuperset(step.results)):
                continue
            if any(isinstance(change, Gather) for change in step.changes):
                yield number
