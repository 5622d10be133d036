"""What a gradient is multiplied by on its way back from the outputs: gradients of which this differs are not equal.

Sums, plain scans and what is broadcast into a sum pass a gradient on as it is; a product multiplies it by the other
factor. Two gradients that XLA finds equal have met the same outputs and the same values. That they were put together
of them in the same way is not asked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from functools import reduce
from operator import or_

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_inexact
from combinators.monoids import Sum
from tapestry_jax.planning.derivatives.gradients import derivative_needs, presents_linearly
from tapestry_jax.planning.prediction.turning import carried
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step

Met = dict[int, int]
"""By slot what the gradient there has met since the outputs: one bit for each output and each value."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """What the gradients of a schedule have met.

    Attributes:
      schedule: of a plan, or the body of a loop.
      sources: for every slot the value that it holds, in whatever layout.
      places: of values and outputs among the bits; shared with the loops inside.
      met: by slot, at the slot.
      loops: by the identity of a loop the same of its body.
    """

    schedule: Schedule
    sources: dict[int, Hashable]
    places: dict[Hashable, int]
    met: Met = field(default_factory=dict[int, int])
    loops: dict[int, Gradients] = field(default_factory=dict[int, "Gradients"])

    def at(self, slots: Iterable[int]) -> int:
        """What the gradients of some slots have met, together."""
        return reduce(or_, (self.met.get(slot, 0) for slot in slots), 0)

    def behind(self, step: Run, place: int) -> int:
        """What the gradient of an operand has met, the derivative by it included."""
        graph, count = self.schedule.graph, len(self.schedule.graph.nodes[step.node].operands)
        after = self.at(step.results)
        if place >= count or not is_inexact(self.schedule.slots[step.operands[place]].type.dtype):
            return after
        needed = (value for value in range(count) if derivative_needs(graph, step.node, place, value))
        return reduce(or_, (self._bit(self.sources[step.operands[value]]) for value in needed), after)

    def of_state(self, step: Run | Finish) -> int:
        """What the gradient of a fold's or scan's merged state has met: the state, too, unless it is a plain sum."""
        operation = self.schedule.graph.shaped(step.node).operation
        after = self.at(step.results)
        if operation.monoid == Sum and presents_linearly(self.schedule.graph, step.node):
            return after
        return after | self._bit(self.sources[step.results[0]])

    def find(self, ends: Mapping[int, int]) -> None:
        """Walk backwards from some outputs, whose gradients have met something already."""
        for slot, bits in ends.items():
            self.met[slot] = self.met.get(slot, 0) | bits
        for step in reversed(self.schedule.steps):
            for slot, bits in self._operands(step):
                self.met[slot] = self.met.get(slot, 0) | bits

    def _operands(self, step: Step) -> Iterable[tuple[int, int]]:
        match step:
            case Convert():
                return [(step.source, self.at(step.results))]
            case Run():
                return [(slot, self.behind(step, place)) for place, slot in enumerate(step.operands)]
            case Finish():
                return [(slot, self.of_state(step)) for slot in step.operands]
            case Region() | Repeat():
                return self._of_loop(step)

    def _of_loop(self, step: Region | Repeat) -> Iterable[tuple[int, int]]:
        body, entering = step.body, list(zip(step.body.inputs, step.operands, strict=False))
        inside = _unwalked(body, {inner: self.sources[slot] for inner, slot in entering}, self.places, id(step))
        self.loops[id(step)] = inside
        leaving = step.results_inside if isinstance(step, Region) else body.outputs
        ends = {out: self.met.get(result, 0) for out, result in zip(leaving, step.results, strict=True)}
        pairs = carried(step)
        for _ in range(len(pairs) + 1):
            inside.find(ends)
            more = {made: inside.met.get(entered, 0) for made, entered in pairs}
            if all(inside.met.get(slot, 0) | bits == inside.met.get(slot, 0) for slot, bits in more.items()):
                break
            ends = more
        early = {each.result: each.source for each in (step.prologue if isinstance(step, Repeat) else ())}
        for result, source in reversed(early.items()):
            inside.met[source] = inside.at((source, result))
        return [(slot, inside.met.get(inner, 0)) for inner, slot in entering]

    def _bit(self, of: Hashable) -> int:
        return 1 << self.places.setdefault(of, len(self.places))


def gradients_of(schedule: Schedule, *, is_whole: bool) -> Gradients:
    """What the gradients of a schedule have met since its outputs.

    Args:
      schedule: of a plan, or the body of a loop.
      is_whole: whether it is the plan's own. The gradients that enter a body by several outputs may be equal.
    """
    key = "gradients", is_whole
    if key not in schedule.known:
        found = _unwalked(schedule, {}, {}, 0)
        ends = {slot: 1 << found.places.setdefault(("output", slot), len(found.places)) for slot in schedule.outputs}
        found.find(ends if is_whole else {})
        schedule.known[key] = found
    return schedule.known[key]


def _unwalked(
    schedule: Schedule, entering: Mapping[int, Hashable], places: dict[Hashable, int], owner: int
) -> Gradients:
    sources: dict[int, Hashable] = {slot: (owner, slot) for slot in range(len(schedule.slots))}
    sources |= entering
    for step in schedule.steps:
        if isinstance(step, Convert):
            sources[step.result] = sources[step.source]
    return Gradients(schedule, sources, places)
