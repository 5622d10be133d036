"""Loops that end by a condition, and on which no output depends differentiably: behind them gradients are stopped.

A loop in time hands its operands gradients, zeros too, so that such a loop would be asked for one that it does not
have: clusters that are found first, say, and then compared with in a loss that takes its rows in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.planning.prediction.flow import Flow, any_flow_of, flow_of_body, flow_of_region
from tapestry_jax.planning.proof.site import refuse
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Schedule, Step


def stopped(schedule: Schedule) -> Schedule:
    """The same schedule, such loops marked."""
    sources = {slot for slot in schedule.inputs if is_inexact(schedule.slots[slot].type.dtype)}
    return _marked(schedule, any_flow_of(schedule, sources))


def check_stopped(schedule: Schedule) -> None:
    """Refuse a schedule in which gradients end behind a loop on which an output depends, or go on behind one of these.

    Raises:
      PlanError: naming the loop.
    """
    found = list(_repeats(schedule))
    if not any(step.until or step.stopped for step in found):
        return
    for step, right in zip(found, _repeats(stopped(schedule)), strict=True):
        if step.stopped != right.stopped:
            refuse(step.path, "ends gradients that pass there" if step.stopped else "hands on gradients that end there")


def _repeats(schedule: Schedule) -> Iterator[Repeat]:
    for step in schedule.steps:
        if isinstance(step, Repeat):
            yield step
        if isinstance(step, Repeat | Region):
            yield from _repeats(step.body)


def _marked(schedule: Schedule, flow: Flow) -> Schedule:
    return replace(schedule, steps=tuple(_step(step, flow) for step in schedule.steps))


def _step(step: Step, flow: Flow) -> Step:
    match step:
        case Repeat():
            is_needed = any(slot in flow.useful for slot in step.results)
            body = _marked(step.body, flow_of_body(step, flow))
            return replace(step, body=body, stopped=step.until and not is_needed)
        case Region():
            return replace(step, body=_marked(step.body, flow_of_region(step, flow)))
        case _:
            return step
