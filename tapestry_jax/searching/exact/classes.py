"""Operations that are the same and stand among the same: placed alike, so that equal layers are solved once.

By colours: at first the colour of an operation is what it computes of what; then, round by round, also the colours of
what it reads and of what reads it. Layers that are written out one by one so become a first, a middle and a last one.
"""

from __future__ import annotations

from collections.abc import Hashable

from combinators.frozen import dataclass
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.prediction.flow import Flow
from tapestry_jax.planning.scheduling.schedule import Run, Schedule

ROUNDS = 2
"""How far around an operation its neighbours count."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of a schedule's steps, in order, and of its inputs."""

    steps: tuple[int, ...]
    inputs: tuple[int, ...]


def classes(schedule: Schedule, flow: Flow, apart: frozenset[int] = frozenset()) -> Classes:
    """Find them.

    Args:
      schedule: that cuts nothing.
      flow: in it.
      apart: steps that stand alone, such as those whose placement the user fixed, and inputs after them by number.
    """
    known: dict[Hashable, int] = {}

    def colour(key: Hashable) -> int:
        return known.setdefault(key, len(known))

    count = len(schedule.steps)
    makers: dict[int, tuple[int, int]] = {}
    readers: dict[int, list[tuple[int, int]]] = {}
    for number, step in enumerate(schedule.steps):
        for place, slot in enumerate(step.operands):
            readers.setdefault(slot, []).append((number, place))
        makers.update((slot, (number, place)) for place, slot in enumerate(step.results))
    makers.update((slot, (count + number, 0)) for number, slot in enumerate(schedule.inputs))
    for place, slot in enumerate(schedule.outputs):
        readers.setdefault(slot, []).append((-1 - place, 0))
    own = own_arguments(schedule)
    twice = frozenset(number for unit in schedule.again for number in range(unit.first, unit.end))
    found = [
        colour(_first(schedule, flow, own, twice, number) if number not in apart else ("apart", number))
        for number in range(count)
    ]
    for number, slot in enumerate(schedule.inputs):
        kind = schedule.slots[slot].type, flow.carries_gradient(slot)
        found.append(colour(kind if count + number not in apart else ("apart", count + number)))
    for _ in range(ROUNDS):
        again: list[int] = []
        for number in range(count + len(schedule.inputs)):
            step = schedule.steps[number] if number < count else None
            made = step.results if step is not None else (schedule.inputs[number - count],)
            read = step.operands if step is not None else ()
            before = tuple((found[makers[slot][0]], makers[slot][1]) for slot in read if slot in makers)
            after = tuple(
                tuple(sorted((found[at] if at >= 0 else at, place) for at, place in readers.get(slot, ())))
                for slot in made
            )
            again.append(colour((found[number], before, after)))
        found = again
    return Classes(tuple(found[:count]), tuple(found[count:]))


def own_arguments(schedule: Schedule) -> frozenset[int]:
    """Arguments that one layer alone reads: what several read is gathered once, and stays."""
    unit_of = {number: at for at, unit in enumerate(schedule.again) for number in range(unit.first, unit.end)}
    readers: dict[int, set[int | None]] = {slot: set() for slot in schedule.inputs}
    for number, step in enumerate(schedule.steps):
        for slot in step.operands:
            if slot in readers:
                readers[slot].add(unit_of.get(number))
    return frozenset(slot for slot, found in readers.items() if len(found) == 1 and None not in found)


def _first(schedule: Schedule, flow: Flow, own: frozenset[int], twice: frozenset[int], number: int) -> Hashable:
    step = schedule.steps[number]
    if not isinstance(step, Run):
        return "alone", number
    node = schedule.graph.nodes[step.node]
    assert isinstance(node, Apply)
    slots = (*step.operands, *step.results)
    return (
        node.operation,
        node.names,
        tuple(schedule.slots[slot].type for slot in slots),
        tuple((slot in flow.live, flow.carries_gradient(slot)) for slot in slots),
        step.kept,
        tuple(slot in own for slot in step.operands),
        number in twice,
    )
