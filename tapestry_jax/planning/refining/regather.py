"""Stored over a mesh axis, gathered where it is used: inside a loop the gathered copy is not kept for the gradient.

A loop over stacked layers saves what its backward pass needs of every turn. Where a layer's slice is gathered by a step
of its own, the gathered copy is such a value, and at the end all layers lie on every device. Here the gather becomes a
part of the operation that wants it: the loop saves the stored piece, and the backward pass gathers again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeGuard

from tapestry_jax.planning.derivatives.gradients import presents_linearly
from tapestry_jax.planning.folding.merges import is_sum
from tapestry_jax.planning.geometry.changes import Gather
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Run, Schedule, Step


def regathered(schedule: Schedule) -> Schedule:
    """The same schedule, in whose loops operations gather slices of stacked operands themselves.

    A gather stays a step of its own where several steps share its result: their gradients are added before they are
    scattered, once. It stays one as well where the operation is a fold over the mesh that is no plain sum: running it
    again would merge its states again. Where the whole turn is computed again, gathers stay what they are, and are
    only not kept.
    """
    return replace(schedule, steps=tuple(_inside(step) for step in schedule.steps))


def _inside(step: Step) -> Step:
    match step:
        case Repeat():
            return _with_body(step)
        case Region():
            return replace(step, body=regathered(step.body))
        case _:
            return step


def _with_body(loop: Repeat) -> Repeat:
    body = regathered(loop.body)
    slices = set(body.inputs[loop.carries : loop.carries + len(loop.axes)])
    slices.update(early.result for early in loop.prologue if early.source in slices)
    if loop.remat:
        marked = (replace(s, again=True) if _gathers(s) and set(s.operands) <= slices else s for s in body.steps)
        return replace(loop, body=replace(body, steps=tuple(marked)))
    uses = Counter(slot for step in body.steps for slot in step.operands)
    uses.update(body.outputs)
    consumers = {slot: step for step in body.steps for slot in step.operands}
    moved: dict[int, Convert] = {}
    for step in body.steps:
        if isinstance(step, Convert) and step.source in slices and uses[step.result] == 1:
            consumer = consumers.get(step.result)
            if _gathers(step) and isinstance(consumer, Run) and _may_run_again(body, consumer):
                moved[step.result] = step
    kept = [step for step in body.steps if not (isinstance(step, Convert) and step.result in moved)]
    steps = tuple(_gathering(step, moved) if isinstance(step, Run) else step for step in kept)
    return replace(loop, body=replace(body, steps=steps))


def _gathers(step: Step) -> TypeGuard[Convert]:
    return isinstance(step, Convert) and any(isinstance(change, Gather) for change in step.changes)


def _gathering(step: Run, moved: dict[int, Convert]) -> Run:
    gathers = tuple((place, moved[slot].changes) for place, slot in enumerate(step.operands) if slot in moved)
    operands = tuple(moved[slot].source if slot in moved else slot for slot in step.operands)
    return replace(step, operands=operands, gathers=gathers)


def _may_run_again(body: Schedule, step: Run) -> bool:
    """Whether no collective of the operation runs in its backward pass again."""
    shaped, cuts = body.graph.shaped(step.node), dict(step.cuts)
    operation = shaped.operation
    if operation.over in cuts or step.carried:
        return False
    folded = any(dim in cuts for dim in shaped.signature.fold_dims)
    return not folded or (is_sum(shaped) and presents_linearly(body.graph, step.node))
