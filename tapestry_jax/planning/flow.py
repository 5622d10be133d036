"""Liveness: which values of a schedule anybody needs, and which of them a gradient flows through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from combinators.tensor_type import is_inexact
from tapestry_jax.planning.gradients import derivative_dependence, value_dependence
from tapestry_jax.planning.reads import folds_nothing
from tapestry_jax.planning.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step

Edges = list[tuple[int, int]]


@dataclass(frozen=True)
class Flow:
    """Slots by what flows through them.

    Attributes:
      live: an output depends on them.
      forward: they depend, differentiably, on a differentiated input.
      useful: an output depends on them differentiably.
    """

    live: frozenset[int]
    forward: frozenset[int]
    useful: frozenset[int]

    def carries_gradient(self, slot: int) -> bool:
        """Whether a gradient that is not known to be 0 arrives at the slot and goes on to an input."""
        return slot in self.forward and slot in self.useful


def flow_of(schedule: Schedule, sources: set[int]) -> Flow:
    """The flow of a schedule whose inputs `sources` (slots) are differentiated."""
    live = _backward(schedule, schedule.steps, set(schedule.outputs), smooth=False)
    forward = _forward(schedule, schedule.steps, sources) if sources else set[int]()
    sinks = (
        {slot for slot in schedule.outputs if is_inexact(schedule.slots[slot].type.dtype)} if sources else set[int]()
    )
    useful = _backward(schedule, schedule.steps, sinks, smooth=True)
    return Flow(frozenset(live), frozenset(forward), frozenset(useful))


def flow_of_body(step: Repeat, outer: Flow) -> Flow:
    """The flow inside a loop, where what is carried flows on from turn to turn."""
    body, steps = step.body, (*step.prologue, *step.body.steps)
    sources = {slot for slot, out in zip(body.inputs, step.operands, strict=True) if outer.carries_gradient(out)}
    sinks = {slot for slot, out in zip(body.outputs, step.results, strict=True) if out in outer.useful}
    alive = {slot for slot, out in zip(body.outputs, step.results, strict=True) if out in outer.live}
    forward, useful, live = set[int](), set[int](), set[int]()
    for _ in range(step.carries + 1):
        forward = _forward(body, steps, sources)
        sources |= {body.inputs[c] for c in range(step.carries) if body.outputs[c] in forward}
        useful = _backward(body, steps, sinks, smooth=True)
        sinks |= {body.outputs[c] for c in range(step.carries) if body.inputs[c] in useful}
        live = _backward(body, steps, alive, smooth=False)
        alive |= {body.outputs[c] for c in range(step.carries) if body.inputs[c] in live}
    return Flow(frozenset(live), frozenset(forward), frozenset(useful))


def flow_of_region(step: Region, outer: Flow) -> Flow:
    """The flow inside a loop in time; the total of a scan takes the way that its steps take in their own turn."""
    body = step.body
    sources = {slot for slot, out in zip(body.inputs, step.operands, strict=False) if outer.carries_gradient(out)}
    outputs = step.results_inside
    sinks = {slot for slot, out in zip(outputs, step.results, strict=True) if out in outer.useful}
    alive = {slot for slot, out in zip(outputs, step.results, strict=True) if out in outer.live}
    # What a stage hands on enters the next one.
    handed = [(body.inputs[place], body.outputs[number]) for number, place in enumerate(step.handed)]
    forward, useful, live = set[int](), set[int](), set[int]()
    for _ in range(len(handed) + 1):
        forward = _forward(body, body.steps, sources)
        sources |= {received for received, sent in handed if sent in forward}
        useful = _backward(body, body.steps, sinks, smooth=True)
        sinks |= {sent for received, sent in handed if received in useful}
        live = _backward(body, body.steps, alive, smooth=False)
        alive |= {sent for received, sent in handed if received in live}
    return Flow(frozenset(live), frozenset(forward), frozenset(useful))


def _forward(schedule: Schedule, steps: tuple[Step, ...], sources: set[int]) -> set[int]:
    reached = set(sources)
    for step in steps:
        reached.update(result for operand, result in edges(schedule, step, smooth=True) if operand in reached)
    return reached


def _backward(schedule: Schedule, steps: tuple[Step, ...], sinks: set[int], *, smooth: bool) -> set[int]:
    reached = set(sinks)
    for step in reversed(steps):
        reached.update(operand for operand, result in edges(schedule, step, smooth=smooth) if result in reached)
    return reached


def edges(schedule: Schedule, step: Step, *, smooth: bool) -> Edges:
    """Pairs of slots of which the second depends on the first (`smooth`: with a derivative).

    Nothing flows into or out of a tensor without cells, nor through a fold over nothing.
    """
    found = _edges(schedule, step, smooth=smooth)
    return [(a, b) for a, b in found if schedule.slots[a].has_cells and schedule.slots[b].has_cells]


def _edges(schedule: Schedule, step: Step, *, smooth: bool) -> Edges:
    match step:
        case Convert():
            return [(step.source, step.result)]
        case Run():
            if folds_nothing(schedule.graph.shaped(step.node)):
                return []
            matrix = (derivative_dependence if smooth else value_dependence)(schedule.graph, step.node)
            if step.carried:
                # A state, or a total, is taken to depend on whatever any result does.
                row = [any(column) for column in zip(*matrix, strict=True)]
                row += [True] * (len(step.operands) - len(row))
                matrix = [row for _ in step.results]
            return _chosen(schedule, step, matrix, smooth=smooth)
        case Finish():
            return _chosen(schedule, step, [[True] * len(step.operands) for _ in step.results], smooth=smooth)
        case Repeat():
            return _loop_edges(step, smooth=smooth)
        case Region():
            return _region_edges(step, smooth=smooth)


def _chosen(schedule: Schedule, step: Run | Finish, matrix: Sequence[Sequence[bool]], *, smooth: bool) -> Edges:
    def differs(slot: int) -> bool:
        return not smooth or is_inexact(schedule.slots[slot].type.dtype)

    return [
        (operand, result)
        for result, row in zip(step.results, matrix, strict=True)
        for operand, depends in zip(step.operands, row, strict=True)
        if depends and differs(operand) and differs(result)
    ]


def _region_edges(step: Region, *, smooth: bool) -> Edges:
    body, found = step.body, list[tuple[int, int]]()
    for slot, operand in zip(body.inputs, step.operands, strict=False):
        reached = {slot} if not smooth or is_inexact(body.slots[slot].type.dtype) else set[int]()
        for inner in body.steps:
            reached.update(r for o, r in edges(body, inner, smooth=smooth) if o in reached)
        found += [
            (operand, out) for out, made in zip(step.results, step.results_inside, strict=True) if made in reached
        ]
    return found


def _loop_edges(step: Repeat, *, smooth: bool) -> Edges:
    body, steps = step.body, (*step.prologue, *step.body.steps)
    reach: dict[int, set[int]] = {}
    for number, slot in enumerate(body.inputs):
        reached = {slot} if not smooth or is_inexact(body.slots[slot].type.dtype) else set[int]()
        for inner in steps:
            reached.update(r for o, r in edges(body, inner, smooth=smooth) if o in reached)
        reach[number] = {j for j, out in enumerate(body.outputs) if out in reached}
    for _ in range(step.carries):
        for found in reach.values():
            for carry in [j for j in found if j < step.carries]:
                found |= reach[carry]
    return [(step.operands[i], step.results[j]) for i, found in reach.items() for j in found]
