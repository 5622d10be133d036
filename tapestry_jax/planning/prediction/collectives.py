"""What a schedule communicates: kind, mesh axes, bytes per device, and the operation that causes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.derivatives.gradients import differentiated
from tapestry_jax.planning.entries.remat import RINGS
from tapestry_jax.planning.geometry.hops import axes_apart
from tapestry_jax.planning.geometry.time_axis import ring_of
from tapestry_jax.planning.prediction.bounds import has_unread, marked
from tapestry_jax.planning.prediction.collective import Collective as Collective
from tapestry_jax.planning.prediction.conversions import sent_by_changes, sent_by_convert
from tapestry_jax.planning.prediction.flow import Flow, flow_of, flow_of_body, flow_of_region
from tapestry_jax.planning.prediction.once import runs_once
from tapestry_jax.planning.prediction.operations import sent_by_gathers, sent_by_run
from tapestry_jax.planning.prediction.recomputed import Again, again_in, rotated_again
from tapestry_jax.planning.prediction.turning import (
    Turning,
    from_call_to_call,
    is_still,
    passes_still,
    turning_in,
)
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step, Unit


@dataclass(frozen=True)
class Loops:
    """The loops around some steps that run them again in the backward pass.

    Attributes:
      again: how many, in time or recomputed.
      maybe: how many of them only may.
    """

    again: int = 0
    maybe: int = 0

    def inside(self, step: Region | Repeat, schedule: Schedule) -> Loops:
        """Those around what a loop holds."""
        if isinstance(step, Repeat):
            return replace(self, again=self.again + step.remat)
        once = runs_once(step, schedule)
        return self if once else Loops(self.again + 1, self.maybe + (once is None))


_ALONE = Loops()

Place = tuple[int, ...]
"""Where a step stands: its number, in the body of the loop of this number, and so on; the outermost loop first."""


def collectives(schedule: Schedule, grad: bool | int | Sequence[int] = False) -> tuple[Collective, ...]:
    """The collectives of a schedule, forward and, with `grad`, backward.

    Args:
      schedule: of a plan.
      grad: True for the gradient by every inexact input, or the positions of the arguments to differentiate.
    """
    return tuple(found for _, found in placed_collectives(schedule, grad))


def placed_collectives(
    schedule: Schedule, grad: bool | int | Sequence[int] = False, *, bounds: bool = True
) -> tuple[tuple[Place, Collective], ...]:
    """The same collectives, each with the step that sends it.

    Args:
      schedule: of a plan.
      grad: as for `collectives`.
      bounds: whether to ask which of them may run less often; where a schedule is priced that says nothing, and takes
        as long as all else.
    """
    sources = {schedule.inputs[i] for i in differentiated(schedule.graph, grad)}
    if not bounds:
        return _nonempty(_of(schedule, flow_of(schedule, sources), turning=None))
    found = _sent(schedule, sources)
    if not has_unread(schedule):
        return found
    surely = Counter((place, each) for place, each in _sent(schedule, sources, surely=True) if not each.bound)
    return tuple((place, _at_most(place, each, surely)) for place, each in found)


def _sent(schedule: Schedule, sources: set[int], *, surely: bool = False) -> tuple[tuple[Place, Collective], ...]:
    flow, turning = flow_of(schedule, sources, surely=surely), (from_call_to_call(schedule, surely=surely),)
    return _nonempty(_of(schedule, flow, turning=turning))


def _nonempty(found: Iterable[tuple[Place, Collective]]) -> tuple[tuple[Place, Collective], ...]:
    # XLA drops what moves no bytes.
    return tuple((place, each) for place, each in found if each.bytes)


def _at_most(place: Place, found: Collective, surely: Counter[tuple[Place, Collective]]) -> Collective:
    """A collective, which is a bound where it is not among those that are `surely` sent; this takes it from them."""
    if surely[place, found]:
        surely[place, found] -= 1
        return found
    return replace(found, bound=True)


def _of(
    schedule: Schedule, flow: Flow, loops: Loops = _ALONE, turning: Turning | None = (), *, rings: bool | None = False
) -> Iterator[tuple[Place, Collective]]:
    """All collectives; `loops` are those around that run the steps again in the backward pass.

    Where `turning` is None nobody asks which of them are bounds. `rings`, and what goes round one does so again; None
    where a loop in time around keeps it.
    """
    seen: set[Any] = set()
    again = again_in(schedule, flow)
    brought: dict[Hashable, set[Any]] = {}
    places: list[Place] = []
    found: list[tuple[Step | None, Collective]] = []
    for number, step in enumerate(schedule.steps):
        unit = next((unit for unit in schedule.again if unit.first <= number < unit.end), None)
        twice = _Twice(again, unit, brought, rings)
        for place, each in _of_step(schedule, step, flow, loops, turning, seen, twice):
            places.append((number, *place))
            found.append((None if place else step, _stood_still(schedule, step, each, turning)))
    if turning is None:
        return zip(places, (each for _, each in found), strict=True)
    return zip(places, marked(schedule, found, is_whole=len(turning) == 1), strict=True)


def _stood_still(schedule: Schedule, step: Step, sent: Collective, turning: Turning | None) -> Collective:
    """A collective, which is a bound where its step does the same in every turn."""
    if not turning:
        return sent
    still = is_still(schedule, step, turning) or (sent.backward and passes_still(step, turning))
    return sent.at_most(still)


@dataclass(frozen=True)
class _Twice:
    """What a step does once more in the backward pass.

    Attributes:
      again: the slots that are computed again.
      unit: that holds the step; None outside of units.
      brought: by unit and pass, what has been brought together in it already: XLA merges equal gathers there, too.
      rings: whether what goes round a ring does so once more; None where it will not, whatever layers inside want.
    """

    again: Again
    unit: Unit | None
    brought: dict[Hashable, set[Any]]
    rings: bool | None

    def passes(self, slot: int, loops: Loops) -> Iterator[tuple[set[Any], bool]]:
        """For every pass that makes a slot once more what has been brought in it, and whether it only may."""
        if slot in self.again.backward:
            yield self.brought.setdefault((self.unit, "backward"), set()), False
        if slot in self.again.forward and self.again.backward:
            for loop in range(loops.again - 1):
                yield self.brought.setdefault((self.unit, loop), set()), loop < loops.maybe


def _of_step(
    schedule: Schedule, step: Step, flow: Flow, loops: Loops, turning: Turning | None, seen: set[Any], twice: _Twice
) -> Iterator[tuple[Place, Collective]]:
    """What a step sends, and where in it: at the empty place what is its own."""
    match step:
        case Convert():
            yield from _here(sent_by_convert(schedule, step, flow, seen))
            yield from _here(_of_repeated(schedule, step, flow, loops, twice))
        case Run():
            yield from _here(sent_by_gathers(schedule, step, flow, seen, loops.again, loops.maybe))
            yield from _here(sent_by_run(schedule, step, flow, turning or ()))
        case Finish():
            yield from _here(sent_by_run(schedule, step, flow, turning or ()))
        case Repeat():
            yield from _of_repeat(step, flow, loops, turning, seen, twice.rings)
        case Region():
            yield from _of_region(schedule, step, flow, loops, turning, seen, twice)


def _here(found: Iterable[Collective]) -> Iterator[tuple[Place, Collective]]:
    return (((), each) for each in found)


def _of_repeated(schedule: Schedule, step: Convert, flow: Flow, loops: Loops, twice: _Twice) -> Iterable[Collective]:
    """What brings an operand of a recomputed turn again: once for its derivatives, once for every loop around it."""
    if not step.again or step.result not in flow.live:
        return
    for brought, may in twice.passes(step.result, loops):
        for found in sent_by_changes(schedule, step.source, step.changes, step.path, False, brought):
            yield replace(found, backward=True, bound=found.bound or may)


def _of_region(
    schedule: Schedule, step: Region, flow: Flow, loops: Loops, turning: Turning | None, seen: set[Any], twice: _Twice
) -> Iterator[tuple[Place, Collective]]:
    turns, ring, inner = step.turns(schedule.mesh), ring_of(step.axis), flow_of_region(step, flow)
    again = rotated_again(step.body, inner) if twice.rings and ring is not None else frozenset[int]()
    for position in step.rotating:
        slot = step.operands[position]
        if ring is not None and slot in flow.live:
            value = schedule.slots[slot]
            moved = value.local_bytes
            # Between two devices no loop is left, and XLA merges equal rotations of several rings.
            key = (slot, "rotated", ring)
            still = any(slot not in turns.values for turns in turning or ())
            sent = Collective("collective-permute", (ring,), moved, step.path, turns - 1, bound=still)
            if turns > 2 or key not in seen:
                yield (), sent
            seen.add(key)
            if flow.carries_gradient(slot):
                yield (), replace(sent, backward=True)
            if step.body.inputs[position] in again:
                yield (), replace(sent, backward=True, again=True)
    for place in step.handed:
        yield from _here(_of_handing_on(step, step.body.inputs[place], inner, turns))
    # A loop that is computed again keeps what came round inside; one that ends in a scalar takes its gradient along.
    is_again = not twice.rings and any(schedule.slots[slot].local_shape for slot in step.results)
    rings = None if is_again and any(map(flow.carries_gradient, step.results)) else twice.rings
    for inside, found in _of(step.body, inner, loops.inside(step, schedule), _turning_in(step, turning), rings=rings):
        yield inside, replace(found, times=found.times * turns)


def _of_handing_on(step: Region, slot: int, inner: Flow, turns: int) -> Iterable[Collective]:
    """What goes from one stage of a pipeline to the next."""
    if slot not in inner.live:
        return
    mesh, value = step.body.mesh, step.body.slots[slot]
    # Each stage from the one before, and none from the last.
    axes = axes_apart([(0, mesh.size(step.stages) - 1)], 1, step.stages, mesh)
    sent = Collective("collective-permute", axes, value.local_bytes, step.path, turns)
    yield sent
    if inner.carries_gradient(slot):
        yield replace(sent, backward=True)


def _of_repeat(
    step: Repeat, flow: Flow, loops: Loops, turning: Turning | None, outside: set[Any], rings: bool | None
) -> Iterator[tuple[Place, Collective]]:
    if step.length == 0:
        return
    body, inner, first = step.body, flow_of_body(step, flow), step.carries + len(step.axes)
    inside_turning = _turning_in(step, turning)
    around = None if inside_turning is None else inside_turning[:-1]
    stacked = set(body.inputs[step.carries : first])
    # What comes before the loop stands beside it: an equal gather of what is captured is one.
    captured = dict(zip(body.inputs[first:], step.operands[first:], strict=True))
    seen = {(slot, *rest) for slot, out in captured.items() for source, *rest in outside if source == out}
    for early in step.prologue:
        leading = step.length if early.source in stacked else 1
        if early.source in stacked:
            stacked.add(early.result)
        # It is no step of the loop's own turns, and may be the same in all turns of a loop around.
        for found in sent_by_convert(body, early, inner, seen, leading):
            yield (), _stood_still(body, early, found, around)
    outside.update((captured[source], *rest) for source, *rest in seen if source in captured)
    # Layers around that are computed again, and keep what came round, keep it for those inside, too.
    is_kept = rings is None or (step.remat and not rings and step.keeps != RINGS)
    rings = None if is_kept else rings or step.keeps == RINGS
    for inside, found in _of(body, inner, loops.inside(step, body), inside_turning, rings=rings):
        # How many turns a condition leaves depends on data; a loop of one turn is none, and what it gathers is merged
        # with what the backward pass does, or moved out of loops around.
        merged = step.length == 1 and found.kind == "all-gather"
        yield inside, replace(found, times=found.times * step.length, bound=found.bound or step.until or merged)


def _turning_in(step: Region | Repeat, turning: Turning | None) -> Turning | None:
    return None if turning is None else turning_in(step, turning)
