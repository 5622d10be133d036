"""Where what is predicted is a bound: collectives that JAX or XLA may run less often than the schedule does.

Three rules, and no fourth one. What does not depend on the turn of a loop may be moved out of it, and run once (which
values do not: `turning`). XLA sends equal values once: two folds or scans that read one value may exchange the same,
and the gradients of two values that enter a sum are the same. And where an axis is shorter than the windows over it,
kernels may read no cell of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from combinators.graphs.nodes import Ref, Rename
from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.planning.derivatives.gradients import derivative_needs, maybe_unread
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step

Readers = dict[int, list[tuple[Step, int]]]
"""Steps by the slots that they read, and the place among their operands."""


def has_unread(schedule: Schedule) -> bool:
    """Whether a schedule has an operation whose windows may read none of the cells of an operand."""
    for step in schedule.steps:
        if isinstance(step, Run) and maybe_unread(schedule.graph, step.node):
            return True
        if isinstance(step, Region | Repeat) and has_unread(step.body):
            return True
    return False


def marked(schedule: Schedule, found: Sequence[tuple[Step, Collective]]) -> Iterator[Collective]:
    """The collectives of one schedule's own steps; those that XLA may find equal to another step's are bounds."""
    readers, made = _readers(schedule), _made_together(schedule)
    keys: list[dict[Hashable, int]] = [
        dict.fromkeys(_keys(schedule, readers, step, sent), id(step)) | _moved_alike(schedule, made, step, sent)
        for step, sent in found
    ]
    makers: dict[Hashable, set[int]] = {}
    for own in keys:
        for key, maker in own.items():
            makers.setdefault(key, set()).add(maker)
    for (_, sent), own in zip(found, keys, strict=True):
        yield replace(sent, bound=sent.bound or any(len(makers[key]) > 1 for key in own))


def _keys(schedule: Schedule, readers: Readers, step: Step, sent: Collective) -> Iterator[Hashable]:
    """What two steps have in common if they may send the same."""
    like = sent.kind, sent.axes, sent.bytes, sent.backward
    if isinstance(step, Run | Finish):
        for ref in schedule.graph.nodes[step.node].operands:
            yield (*like, _unrenamed(schedule, ref))
    if sent.backward and _passes_on(schedule, readers, step):
        yield like


def _moved_alike(schedule: Schedule, made: dict[int, int], step: Step, sent: Collective) -> dict[Hashable, int]:
    """Likewise, and by whom, where one of several results is moved: of two recurrences with one decay one is equal."""
    if not isinstance(step, Convert) or step.source not in made or sent.backward:
        return {}
    node = made[step.source]
    refs = (_unrenamed(schedule, ref) for ref in schedule.graph.nodes[node].operands)
    return {("moved", sent.kind, sent.axes, sent.bytes, ref): node for ref in refs}


def _made_together(schedule: Schedule) -> dict[int, int]:
    """The slots that are one of several results of a fold or scan, and its node."""
    found: dict[int, int] = {}
    for step in schedule.steps:
        match step:
            case Run() | Finish() if len(step.results) > 1:
                found |= dict.fromkeys(step.results, step.node)
            case Convert() if step.source in found:
                found[step.result] = found[step.source]
            case Region() if step.body.graph is schedule.graph:
                inside = _made_together(step.body)
                pairs = zip(step.results_inside, step.results, strict=True)
                found |= {slot: inside[inner] for inner, slot in pairs if inner in inside}
            case _:
                pass
    return found


def _unrenamed(schedule: Schedule, ref: Ref) -> Ref:
    node = schedule.graph.nodes[ref.node]
    return _unrenamed(schedule, node.operands[0]) if isinstance(node, Rename) else ref


def _readers(schedule: Schedule) -> Readers:
    found: Readers = {}
    for step in schedule.steps:
        for place, slot in enumerate(step.operands):
            found.setdefault(slot, []).append((step, place))
    return found


def _passes_on(schedule: Schedule, readers: Readers, step: Step) -> bool:
    """Whether the gradient at a step is that of what it enters, multiplied by no value."""
    if isinstance(step, Convert):
        entered = readers.get(step.result, [])
        return bool(entered) and all(isinstance(s, Run) and _is_linear(schedule, s, at) for s, at in entered)
    return isinstance(step, Run) and all(_is_linear(schedule, step, at) for at in range(_arity(schedule, step)))


def _arity(schedule: Schedule, step: Run) -> int:
    return len(schedule.graph.nodes[step.node].operands)


def _is_linear(schedule: Schedule, step: Run, place: int) -> bool:
    """Whether an operation's derivative by one operand is computed without any value."""
    count = _arity(schedule, step)
    if place >= count or not is_inexact(schedule.slots[step.operands[place]].type.dtype):
        return False
    return not any(derivative_needs(schedule.graph, step.node, place, value) for value in range(count))
