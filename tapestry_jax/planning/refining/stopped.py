"""Loops that end by a condition, and on which no output depends differentiably: behind them gradients are stopped.

A loop in time hands its operands gradients, zeros too, so that such a loop would be asked for one that it does not
have: clusters that are found first, say, and then compared with in a loss that takes its rows in chunks.
"""

from __future__ import annotations

from dataclasses import replace

from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.planning.prediction.flow import Flow, any_flow_of, flow_of_body, flow_of_region
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Schedule, Step


def stopped(schedule: Schedule) -> Schedule:
    """The same schedule, such loops marked."""
    sources = {slot for slot in schedule.inputs if is_inexact(schedule.slots[slot].type.dtype)}
    return _marked(schedule, any_flow_of(schedule, sources))


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
