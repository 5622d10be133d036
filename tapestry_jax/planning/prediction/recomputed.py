"""What a turn that the backward pass computes again needs: which of its values, and so which of its gathers.

XLA drops of the second pass what no derivative is computed from. What other devices have sent is kept, so that nothing
behind it is needed for its sake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from combinators.frozen import dataclass
from tapestry_jax.planning.derivatives.gradients import derivative_dependence, derivative_needs, value_dependence
from tapestry_jax.planning.prediction.flow import Flow
from tapestry_jax.planning.scheduling.received import is_kept, is_received
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step, Unit


@dataclass(frozen=True)
class Again:
    """Slots of a turn that are computed again.

    Attributes:
      backward: for the derivatives of the turn.
      forward: for what the turn hands on, as a loop in time around it needs that.
    """

    backward: frozenset[int] = frozenset()
    forward: frozenset[int] = frozenset()


def again_in(schedule: Schedule, flow: Flow) -> Again:
    """What is computed again of a schedule whose backward pass finds its inputs, and what was received."""
    if not any(isinstance(step, Convert) and step.again for step in schedule.steps):
        return Again()
    if schedule.again:
        return Again(frozenset().union(*(again_in_unit(schedule, unit, flow) for unit in schedule.again)))
    seeds = {slot for step in schedule.steps for slot in read_by_derivative(schedule, step, flow)}
    handed_on = {slot for slot in schedule.outputs if slot in flow.live}
    steps = schedule.steps
    backward = _computed(schedule, steps, seeds, is_kept)
    # A loop in time around the layers knows nothing of what they keep for their own second pass, and makes it again.
    kept = {slot for step in steps if isinstance(step, Run) and step.kept for slot in step.results}
    return Again(backward, _computed(schedule, steps, handed_on | (kept & backward), is_received))


def rotated_again(body: Schedule, flow: Flow) -> frozenset[int]:
    """The slots of a ring's turn that its derivatives are computed from: what goes round again where the ring does."""
    seeds = {slot for step in body.steps for slot in read_by_derivative(body, step, flow)}
    return _computed(body, body.steps, seeds, is_kept)


def again_in_unit(schedule: Schedule, unit: Unit, flow: Flow) -> frozenset[int]:
    """What is computed again of steps that are so together, for their derivatives; what they read is at hand."""
    steps = schedule.steps[unit.first : unit.end]
    seeds = {slot for step in steps for slot in read_by_derivative(schedule, step, flow)}
    return _computed(schedule, steps, seeds, is_kept)


def _computed(
    schedule: Schedule, steps: Sequence[Step], wanted: Iterable[int], at_hand: Callable[[Schedule, Step], bool]
) -> frozenset[int]:
    """The slots that are computed to have some, as far as the results of steps are not `at_hand`."""
    found = set(wanted)
    for step in reversed(steps):
        if not found.isdisjoint(step.results) and not at_hand(schedule, step):
            found.update(_read(schedule, step, found))
    return frozenset(found)


def _read(schedule: Schedule, step: Step, found: set[int]) -> Iterable[int]:
    """The operands that results of a step among `found` are computed from."""
    if not isinstance(step, Run):
        return step.operands
    matrix = value_dependence(schedule.graph, step.node)
    rows = [row for slot, row in zip(step.results, matrix, strict=False) if slot in found]
    return [slot for place, slot in enumerate(step.operands) if any(row[place] for row in rows if place < len(row))]


def read_by_derivative(schedule: Schedule, step: Step, flow: Flow) -> Iterable[int]:
    """The operands whose values the derivative of a step is computed from, where a gradient flows through it."""
    if not any(map(flow.carries_gradient, step.results)):
        return []
    match step:
        case Convert():
            return []
        case Run():
            graph, node = schedule.graph, step.node
            reached = [any(column) for column in zip(*derivative_dependence(graph, node), strict=True)]
            back = [place for place, slot in enumerate(step.operands) if flow.carries_gradient(slot) and reached[place]]
            return [
                slot
                for place, slot in enumerate(step.operands)
                if any(derivative_needs(graph, node, direction, place) for direction in back)
            ]
        case Repeat() | Region() | Finish():
            return step.operands
