"""How many bytes of values are alive at once on one device, before XLA fuses or reuses anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from combinators.frozen import dataclass
from tapestry_jax.planning.derivatives.gradients import differentiated
from tapestry_jax.planning.prediction.flow import Flow, flow_of, flow_of_body, flow_of_region
from tapestry_jax.planning.scheduling.received import is_kept
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Schedule, Unit


@dataclass(frozen=True)
class Alive:
    """Bytes of one device while a step runs.

    Attributes:
      before: when it begins.
      kept: what all turns of a loop keep for the backward pass; part of `most`.
      most: the most at once until it ends.
      after: when what nobody reads any more is gone.
    """

    before: int
    kept: int
    most: int
    after: int


def alive_at_once(schedule: Schedule, grad: bool | int | Sequence[int] = False) -> int:
    """The largest sum of local values alive at once.

    Args:
      schedule: of a plan.
      grad: as in `plan.collectives`; a gradient is taken to need every value that it flows through.

    Returns:
      Bytes of one device.
    """
    return _peak(schedule, _flow(schedule, grad))


def alive_by_step(schedule: Schedule, grad: bool | int | Sequence[int] = False) -> tuple[Alive, ...]:
    """What is alive while each step runs, forwards; in the backward pass it is the same, in the opposite order."""
    return tuple(_by_step(schedule, _flow(schedule, grad)))


def _flow(schedule: Schedule, grad: bool | int | Sequence[int]) -> Flow | None:
    sources = {schedule.inputs[i] for i in differentiated(schedule.graph, grad)}
    return flow_of(schedule, sources) if sources else None


def _peak(schedule: Schedule, flow: Flow | None) -> int:
    return max((each.most for each in _by_step(schedule, flow)), default=_bytes(schedule, set(schedule.inputs)))


def _by_step(schedule: Schedule, flow: Flow | None) -> Iterator[Alive]:
    """One pass over the steps; with a flow what the backward pass needs stays to the end."""
    again = _again(schedule) if flow is not None else {}
    # What a unit makes again for its gradient is there besides, when its last step is done.
    backward: dict[int, set[int]] = {unit.end - 1: set() for unit in schedule.again} if flow is not None else {}
    for slot, unit in again.items():
        backward[unit.end - 1].add(slot)
    kept = flow.forward - again.keys() if flow is not None else frozenset[int]()
    last = {slot: number for number, step in enumerate(schedule.steps) for slot in step.operands}
    last |= dict.fromkeys((*schedule.outputs, *schedule.inputs, *kept), len(schedule.steps))
    ends: dict[int, list[int]] = {}
    for slot, number in last.items():
        ends.setdefault(number, []).append(slot)
    alive = set(schedule.inputs)
    current = _bytes(schedule, alive)
    for number, step in enumerate(schedule.steps):
        before, turns, inner = current, 0, 0
        made = set(step.results) - alive
        alive |= made
        current += _bytes(schedule, made)
        if isinstance(step, Repeat | Region):
            inside = _flow_inside(step, flow)
            if inside is not None:
                turns = _kept_by_turns(schedule, step, inside)
                current += turns
            # What all turns keep is counted; a turn that is computed again has all that it makes at hand besides.
            by_turns = isinstance(step, Region) or step.remat
            inner = _peak(step.body, inside if by_turns else None)
        if number in backward and flow is not None:
            inner = max(inner, _bytes(schedule, (backward[number] & flow.forward) - alive))
        most = current + inner
        # What nobody reads any more, and what nobody has ever read.
        over = {slot for slot in (*ends.get(number, ()), *(slot for slot in made if slot not in last)) if slot in alive}
        alive -= over
        current -= _bytes(schedule, over)
        yield Alive(before, turns, most, current)


def _again(schedule: Schedule) -> dict[int, Unit]:
    """The slots that units make for themselves and do not keep, and the unit of each."""
    found: dict[int, Unit] = {}
    for unit, own in zip(schedule.again, schedule.made_for_itself(), strict=True):
        steps = schedule.steps[unit.first : unit.end]
        computed = (slot for step in steps if not is_kept(schedule, step) for slot in step.results)
        found |= {slot: unit for slot in computed if slot in own}
    return found


def _flow_inside(step: Repeat | Region, flow: Flow | None) -> Flow | None:
    """The flow of a loop that a gradient flows through."""
    if flow is None or not any(map(flow.carries_gradient, step.results)):
        return None
    return flow_of_body(step, flow) if isinstance(step, Repeat) else flow_of_region(step, flow)


def _kept_by_turns(schedule: Schedule, step: Repeat | Region, inside: Flow) -> int:
    """What all turns of a loop keep for the backward pass, besides the loop's operands."""
    if isinstance(step, Region):
        return step.turns(schedule.mesh) * _kept(step.body, inside, again=True)
    return step.length * (
        _bytes(step.body, step.body.inputs[: step.carries]) + _kept(step.body, inside, again=step.remat)
    )


def _kept(schedule: Schedule, flow: Flow, *, again: bool) -> int:
    """What one turn keeps: all that a gradient flows through; if computed `again`, what was received or is kept."""
    found, units = 0, _again(schedule)
    for step in schedule.steps:
        if not again or is_kept(schedule, step):
            found += _bytes(schedule, (slot for slot in step.results if slot in flow.forward and slot not in units))
        if isinstance(step, Repeat | Region):
            inside = _flow_inside(step, flow)
            if inside is not None and not again:
                found += _kept_by_turns(schedule, step, inside)
    return found


def _bytes(schedule: Schedule, slots: Iterable[int]) -> int:
    return sum(schedule.slots[slot].local_bytes for slot in slots)
