"""Where what is predicted is a bound: collectives that JAX or XLA may run less often than the schedule does.

Three rules, and no fourth one. What does not depend on the turn of a loop may be moved out of it, and run once; what
no input decides is known when XLA compiles (which values those are: `turning`); and a loop of one turn is none, so that
what is brought together in it may be moved and merged as if it stood alone. XLA sends equal values once: two folds
or scans that read one value may exchange the same, and gradients that are multiplied by the same on their ways may be
equal (`multiplied`). And where an axis is shorter than the windows over it, kernels may read no cell of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from combinators.graphs.nodes import unrenamed
from tapestry_jax.planning.derivatives.gradients import maybe_unread
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.planning.prediction.multiplied import Gradients, gradients_of
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step


def has_unread(schedule: Schedule) -> bool:
    """Whether a schedule has an operation whose windows may read none of the cells of an operand."""
    for step in schedule.steps:
        if isinstance(step, Run) and maybe_unread(schedule.graph, step.node):
            return True
        if isinstance(step, Region | Repeat) and has_unread(step.body):
            return True
    return False


def marked(
    schedule: Schedule, found: Sequence[tuple[Step | None, Collective]], *, is_whole: bool = False
) -> Iterator[Collective]:
    """The collectives of one schedule's own steps; those that XLA may find equal to another step's are bounds.

    Args:
      schedule: of a plan, or the body of a loop.
      found: what its steps send; without a step what is sent inside of a loop.
      is_whole: whether it is the plan's own.
    """
    made, like = _made_together(schedule), Counter(_like(sent) for _, sent in found if sent.backward)
    keys: list[dict[Hashable, int]] = []
    for number, (step, sent) in enumerate(found):
        own: dict[Hashable, int] = dict.fromkeys(_values_read(schedule, step, sent), id(step))
        if like[_like(sent)] > 1:
            gradients = gradients_of(schedule, is_whole=is_whole)
            for met, count in _gradients_sent(gradients, step).items():
                # One step may send several that are equal.
                own[_like(sent), met] = id(step) if count == 1 else number
        keys.append(own | _moved_alike(schedule, made, step, sent))
    makers: dict[Hashable, set[int]] = {}
    for own in keys:
        for key, maker in own.items():
            makers.setdefault(key, set()).add(maker)
    for (_, sent), own in zip(found, keys, strict=True):
        yield sent.at_most(any(len(makers[key]) > 1 for key in own))


def _like(sent: Collective) -> Hashable:
    return sent.kind, sent.axes, sent.bytes, sent.backward


def _values_read(schedule: Schedule, step: Step | None, sent: Collective) -> Iterator[Hashable]:
    """Two folds or scans that read one value may send the same."""
    if isinstance(step, Run | Finish):
        for ref in schedule.graph.nodes[step.node].operands:
            yield _like(sent), unrenamed(schedule.graph, ref)


def _gradients_sent(gradients: Gradients, step: Step | None) -> Counter[int]:
    """What the gradients that a step may send have met on their ways, and how many have: equal ones met the same."""
    match step:
        case Convert():
            return Counter([gradients.at(step.results)])
        case Run():
            gathered = (gradients.behind(step, place) for place, _ in step.gathers)
            return Counter([*gathered]) if step.gathers else Counter([gradients.of_state(step)])
        case Finish():
            return Counter([gradients.of_state(step)])
        case Repeat():
            inside = gradients.loops[id(step)]
            return Counter(inside.at(early.results) for early in step.prologue)
        case _:
            return Counter()


def _moved_alike(schedule: Schedule, made: dict[int, int], step: Step | None, sent: Collective) -> dict[Hashable, int]:
    """Likewise, and by whom, where one of several results is moved: of two recurrences with one decay one is equal."""
    if not isinstance(step, Convert) or step.source not in made or sent.backward:
        return {}
    node = made[step.source]
    refs = (unrenamed(schedule.graph, ref) for ref in schedule.graph.nodes[node].operands)
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
