"""Liveness: which values of a schedule anybody needs, and which of them a gradient flows through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combinators.errors import PlanError
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.planning.derivatives.gradients import values_read
from tapestry_jax.planning.scheduling.reads import folds_nothing
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step

Edges = list[tuple[int, int]]


@dataclass(frozen=True)
class Flow:
    """Slots by what flows through them.

    Attributes:
      live: an output depends on them.
      forward: they depend, differentiably, on a differentiated input.
      useful: an output depends on them differentiably.
      surely: what windows may leave unread is taken to be unread.
    """

    live: frozenset[int]
    forward: frozenset[int]
    useful: frozenset[int]
    surely: bool = False

    def carries_gradient(self, slot: int) -> bool:
        """Whether a gradient that is not known to be 0 arrives at the slot and goes on to an input."""
        return slot in self.forward and slot in self.useful


def flow_of(schedule: Schedule, sources: set[int], *, surely: bool = False) -> Flow:
    """The flow of a schedule whose inputs `sources` (slots) are differentiated.

    Args:
      schedule: of a plan.
      sources: slots that are differentiated.
      surely: take what windows may leave unread to be unread, see `maybe_unread`.

    Raises:
      PlanError: where a gradient would go through a loop that ends by a condition.
    """
    key = "flow", frozenset(sources), surely
    if key not in schedule.known:
        flow = any_flow_of(schedule, sources, surely=surely)
        _check_backwards(schedule, flow)
        schedule.known[key] = flow
    return schedule.known[key]


def any_flow_of(schedule: Schedule, sources: set[int], *, surely: bool = False) -> Flow:
    """The same, also where a gradient would go through a loop that has none."""
    whole = _Inside(schedule, schedule.steps, (), (), (), surely)
    live = whole.backward(set(schedule.outputs), smooth=False)
    forward = whole.forward(sources) if sources else set[int]()
    sinks = (
        {slot for slot in schedule.outputs if is_inexact(schedule.slots[slot].type.dtype)} if sources else set[int]()
    )
    useful = whole.backward(sinks, smooth=True)
    return Flow(frozenset(live), frozenset(forward), frozenset(useful), surely)


def _check_backwards(schedule: Schedule, flow: Flow) -> None:
    """Refuse a gradient through a loop that ends by a condition.

    Raises:
      PlanError: naming the loop.
    """
    for step in schedule.steps if flow.forward else ():
        if isinstance(step, Repeat) and step.until and any(map(flow.carries_gradient, step.results)):
            # Few programs have such loops.
            from combinators.numerics.until import no_gradient

            raise PlanError(no_gradient(step.path))
        if isinstance(step, Repeat | Region):
            inside = flow_of_body(step, flow) if isinstance(step, Repeat) else flow_of_region(step, flow)
            _check_backwards(step.body, inside)


def flow_of_body(step: Repeat, outer: Flow) -> Flow:
    """The flow inside a loop, where what is carried flows on from turn to turn."""
    sources = {slot for slot, out in zip(step.body.inputs, step.operands, strict=True) if outer.carries_gradient(out)}
    return _flow_inside(_inside(step, outer.surely), sources, outer)


def unread_starts(step: Repeat) -> frozenset[int]:
    """The carries of a loop of at least one turn of whose start nothing of any result is made, by their numbers."""
    if step.until or not step.length:
        return frozenset()
    read = _inside(step, surely=False).read({*step.results}, smooth=False)
    return frozenset(number for number, slot in enumerate(step.operands[: step.carries]) if slot not in read)


def flow_of_region(step: Region, outer: Flow) -> Flow:
    """The flow inside a loop in time; the total of a scan takes the way that its steps take in their own turn.

    What a stage hands on enters the next one.
    """
    body = step.body
    sources = {slot for slot, out in zip(body.inputs, step.operands, strict=False) if outer.carries_gradient(out)}
    handed = tuple((body.inputs[place], body.outputs[number]) for number, place in enumerate(step.handed))
    return _flow_inside(replace(_inside(step, outer.surely), carried=handed), sources, outer)


@dataclass(frozen=True)
class _Inside:
    """A schedule, or the body of a loop: its steps, and what becomes of the loop's operands and results in it.

    Attributes:
      schedule: of the body.
      steps: those of the body, after what runs once before.
      entering: operand of the loop and input of the body.
      leaving: output of the body and result of the loop.
      carried: input of the body and the output that enters it in the next turn.
      surely: what windows may leave unread is taken to be unread.
      flag: of a loop that ends by one, its input and output in the body: needed for whatever is.
      through: operand of the loop and result, where no turn may stand between them.
    """

    schedule: Schedule
    steps: tuple[Step, ...]
    entering: tuple[tuple[int, int], ...]
    leaving: tuple[tuple[int, int], ...]
    carried: tuple[tuple[int, int], ...]
    surely: bool
    flag: tuple[int, ...] = ()
    through: tuple[tuple[int, int], ...] = ()

    def forward(self, sources: set[int]) -> set[int]:
        """What depends on slots of the body, differentiably, in the same turn or a later one."""
        while True:
            reached = _forward(self, sources)
            more = {slot for slot, out in self.carried if out in reached and self._is_smooth(slot)} - sources
            if not more:
                return reached
            sources = sources | more

    def backward(self, sinks: set[int], *, smooth: bool) -> set[int]:
        """What slots of the body depend on, in the same turn or an earlier one."""
        if sinks and not smooth:
            sinks = sinks | {*self.flag}
        while True:
            reached = _backward(self, sinks, smooth=smooth)
            more = {out for slot, out in self.carried if slot in reached} - sinks
            if not more:
                return reached
            sinks = sinks | more

    def made(self, reached: set[int]) -> set[int]:
        """The results of the loop that depend, differentiably, on its operands among `reached`."""
        inside = self.forward({slot for operand, slot in self.entering if operand in reached and self._is_smooth(slot)})
        handed = {result for operand, result in self.through if operand in reached}
        return handed | {result for out, result in self.leaving if out in inside}

    def read(self, reached: set[int], *, smooth: bool) -> set[int]:
        """The operands of the loop that its results among `reached` depend on."""
        inside = self.backward({out for out, result in self.leaving if result in reached}, smooth=smooth)
        handed = {operand for operand, result in self.through if result in reached}
        return handed | {o for o, slot in self.entering if slot in inside and (not smooth or self._is_smooth(slot))}

    def _is_smooth(self, slot: int) -> bool:
        return is_inexact(self.schedule.slots[slot].type.dtype)


def _inside(step: Repeat | Region, surely: bool) -> _Inside:
    body, entering = step.body, tuple(zip(step.operands, step.body.inputs, strict=False))
    if isinstance(step, Region):
        return _Inside(
            body, body.steps, entering, tuple(zip(step.results_inside, step.results, strict=True)), (), surely
        )
    leaving = tuple(zip(body.outputs, step.results, strict=True))
    carried = tuple(zip(body.inputs[: step.carries], body.outputs[: step.carries], strict=True))
    flag = (body.inputs[0], body.outputs[0]) if step.until else ()
    through = tuple(_untouched(step)) if step.until else ()
    return _Inside(body, (*step.prologue, *body.steps), entering, leaving, carried, surely, flag, through)


def _flow_inside(inside: _Inside, sources: set[int], outer: Flow) -> Flow:
    forward = inside.forward(sources)
    useful = inside.backward({out for out, result in inside.leaving if result in outer.useful}, smooth=True)
    live = inside.backward({out for out, result in inside.leaving if result in outer.live}, smooth=False)
    return Flow(frozenset(live), frozenset(forward), frozenset(useful), outer.surely)


def _forward(inside: _Inside, sources: set[int]) -> set[int]:
    schedule, reached = inside.schedule, set(sources)
    for step in inside.steps:
        if isinstance(step, Repeat) and not step.length:
            reached.update(result for operand, result in _untouched(step) if operand in reached)
        elif isinstance(step, Repeat | Region):
            operands = {slot for slot in step.operands if slot in reached and schedule.slots[slot].has_cells}
            made = _inside(step, inside.surely).made(operands) if operands else operands
            reached.update(slot for slot in made if schedule.slots[slot].has_cells)
        else:
            reached.update(result for operand, result in _edges(inside, step, smooth=True) if operand in reached)
    return reached


def _backward(inside: _Inside, sinks: set[int], *, smooth: bool) -> set[int]:
    schedule, reached = inside.schedule, set(sinks)
    for step in reversed(inside.steps):
        if isinstance(step, Repeat) and not step.length:
            reached.update(operand for operand, result in _untouched(step) if result in reached)
        elif isinstance(step, Repeat | Region):
            results = {slot for slot in step.results if slot in reached and schedule.slots[slot].has_cells}
            read = _inside(step, inside.surely).read(results, smooth=smooth) if results else results
            reached.update(slot for slot in read if schedule.slots[slot].has_cells)
        else:
            reached.update(operand for operand, result in _edges(inside, step, smooth=smooth) if result in reached)
    return reached


def _untouched(step: Repeat) -> Edges:
    """What a loop hands through where it takes no turn: its carries, as they are."""
    return list(zip(step.operands[: step.carries], step.results, strict=False))


def _edges(inside: _Inside, step: Convert | Run | Finish, *, smooth: bool) -> Edges:
    """Pairs of slots of which the second depends on the first (`smooth`: with a derivative).

    Nothing flows into or out of a tensor without cells, nor through a fold over nothing.
    """
    # Asked forwards, backwards, and once more for every turn that a loop hands on. The step is kept with its edges, so
    # that no other one takes its identity.
    key = "edges", id(step), inside.surely, smooth
    known = inside.schedule.known.get(key)
    if known is None:
        slots = inside.schedule.slots
        found = _all_edges(inside, step, smooth=smooth)
        edges = [(a, b) for a, b in found if slots[a].has_cells and slots[b].has_cells]
        known = inside.schedule.known[key] = step, edges
    return known[1]


def _all_edges(inside: _Inside, step: Convert | Run | Finish, *, smooth: bool) -> Edges:
    schedule = inside.schedule
    match step:
        case Convert():
            return [(step.source, step.result)]
        case Run():
            if folds_nothing(schedule.graph.shaped(step.node)):
                return []
            matrix = values_read(schedule.graph, step.node, surely=inside.surely, smooth=smooth)
            if step.carried:
                # A state, or a total, is taken to depend on whatever any result does.
                row = [any(column) for column in zip(*matrix, strict=True)]
                row += [True] * (len(step.operands) - len(row))
                matrix = [row for _ in step.results]
            return _chosen(schedule, step, matrix, smooth=smooth)
        case Finish():
            return _chosen(schedule, step, [[True] * len(step.operands) for _ in step.results], smooth=smooth)


def _chosen(schedule: Schedule, step: Run | Finish, matrix: Sequence[Sequence[bool]], *, smooth: bool) -> Edges:
    def differs(slot: int) -> bool:
        return not smooth or is_inexact(schedule.slots[slot].type.dtype)

    return [
        (operand, result)
        for result, row in zip(step.results, matrix, strict=True)
        for operand, depends in zip(step.operands, row, strict=True)
        if depends and differs(operand) and differs(result)
    ]
