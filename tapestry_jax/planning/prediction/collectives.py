"""What a schedule communicates: kind, mesh axes, bytes per device, and the operation that causes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.derivatives.gradients import (
    derivative_dependence,
    derivative_needs,
    differentiated,
    state_derivative_dependence,
    value_dependence,
)
from tapestry_jax.planning.folding.merges import local_sizes, local_state
from tapestry_jax.planning.folding.sent import Sent
from tapestry_jax.planning.folding.traffic import sent_by_fold, sent_by_scan
from tapestry_jax.planning.geometry.changes import (
    Cast,
    Change,
    Deal,
    Exchange,
    Gather,
    Overlap,
    Share,
    Slice,
    changed_shape,
)
from tapestry_jax.planning.geometry.drift import drifts
from tapestry_jax.planning.geometry.hops import axes_apart, sent_hops
from tapestry_jax.planning.geometry.time_axis import in_space, ring_of
from tapestry_jax.planning.prediction.bounds import has_unread, marked
from tapestry_jax.planning.prediction.collective import Collective as Collective
from tapestry_jax.planning.prediction.flow import Flow, flow_of, flow_of_body, flow_of_region
from tapestry_jax.planning.prediction.recomputed import Again, again_in
from tapestry_jax.planning.prediction.turning import (
    Turning,
    from_call_to_call,
    is_still,
    passes_still,
    sends_still,
    turning_in,
)
from tapestry_jax.planning.scheduling.reads import fold_axes, folds_nothing
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step, Unit

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
    schedule: Schedule, grad: bool | int | Sequence[int] = False
) -> tuple[tuple[Place, Collective], ...]:
    """The same collectives, each with the step that sends it."""
    sources = {schedule.inputs[i] for i in differentiated(schedule.graph, grad)}
    found = _sent(schedule, sources)
    if not has_unread(schedule):
        return found
    surely = Counter((place, each) for place, each in _sent(schedule, sources, surely=True) if not each.bound)
    return tuple((place, _at_most(place, each, surely)) for place, each in found)


def _sent(schedule: Schedule, sources: set[int], *, surely: bool = False) -> tuple[tuple[Place, Collective], ...]:
    # XLA drops what moves no bytes.
    flow, turning = flow_of(schedule, sources, surely=surely), (from_call_to_call(schedule, surely=surely),)
    return tuple((place, found) for place, found in _of(schedule, flow, turning=turning) if found.bytes)


def _at_most(place: Place, found: Collective, surely: Counter[tuple[Place, Collective]]) -> Collective:
    """A collective, which is a bound where it is not among those that are `surely` sent; this takes it from them."""
    if surely[place, found]:
        surely[place, found] -= 1
        return found
    return replace(found, bound=True)


def _of(schedule: Schedule, flow: Flow, loops: int = 0, turning: Turning = ()) -> Iterator[tuple[Place, Collective]]:
    """All collectives; `loops` run the steps, in time or recomputed, which run them again in the backward pass."""
    seen: set[Any] = set()
    again = again_in(schedule, flow)
    brought: dict[Hashable, set[Any]] = {}
    places: list[Place] = []
    found: list[tuple[Step | None, Collective]] = []
    for number, step in enumerate(schedule.steps):
        unit = next((unit for unit in schedule.again if unit.first <= number < unit.end), None)
        twice = _Twice(again, unit, brought)
        for place, each in _of_step(schedule, step, flow, loops, turning, seen, twice):
            places.append((number, *place))
            still = is_still(schedule, step, turning) or (each.backward and passes_still(step, turning))
            found.append((None if place else step, replace(each, bound=each.bound or still)))
    return zip(places, marked(schedule, found, is_whole=len(turning) == 1), strict=True)


@dataclass(frozen=True)
class _Twice:
    """What a step does once more in the backward pass.

    Attributes:
      again: the slots that are computed again.
      unit: that holds the step; None outside of units.
      brought: by unit and pass, what has been brought together in it already: XLA merges equal gathers there, too.
    """

    again: Again
    unit: Unit | None
    brought: dict[Hashable, set[Any]]

    def passes(self, slot: int, loops: int) -> Iterator[set[Any]]:
        """For every pass that makes a slot once more what has been brought in it."""
        if slot in self.again.backward:
            yield self.brought.setdefault((self.unit, "backward"), set())
        if slot in self.again.forward and self.again.backward:
            yield from (self.brought.setdefault((self.unit, loop), set()) for loop in range(loops - 1))


def _of_step(
    schedule: Schedule, step: Step, flow: Flow, loops: int, turning: Turning, seen: set[Any], twice: _Twice
) -> Iterator[tuple[Place, Collective]]:
    """What a step sends, and where in it: at the empty place what is its own."""
    match step:
        case Convert():
            yield from _here(_of_convert(schedule, step, flow, seen))
            yield from _here(_of_repeated(schedule, step, flow, loops, twice))
        case Run():
            yield from _here(_of_gathers(schedule, step, flow, seen, loops))
            yield from _here(_of_run(schedule, step, flow, turning))
        case Finish():
            yield from _here(_of_run(schedule, step, flow, turning))
        case Repeat():
            yield from _of_repeat(step, flow, loops, turning, seen)
        case Region():
            yield from _of_region(schedule, step, flow, loops, turning, seen)


def _here(found: Iterable[Collective]) -> Iterator[tuple[Place, Collective]]:
    return (((), each) for each in found)


def sent_by_convert(
    schedule: Schedule, step: Convert, flow: Flow, seen: set[Any], leading: int = 1
) -> Iterable[Collective]:
    """What one change of layout sends by itself.

    Args:
      schedule: that has its slots.
      step: the change.
      flow: through it.
      seen: what other changes of the same value have sent already, which is not sent again; this adds its own.
      leading: of slices that a loop stacks, how many are changed at once.
    """
    return _of_convert(schedule, step, flow, seen, leading)


def sent_by_run(schedule: Schedule, step: Run, flow: Flow) -> Iterable[Collective]:
    """What one operation sends by itself, beside what it gathers."""
    return _of_run(schedule, step, flow, ())


def _of_convert(
    schedule: Schedule, step: Convert, flow: Flow, seen: set[Any], leading: int = 1
) -> Iterable[Collective]:
    if step.result not in flow.live:
        return
    smooth = flow.carries_gradient(step.source) and step.result in flow.useful
    yield from _of_changes(schedule, step.source, step.changes, step.path, smooth, seen, leading)


def _of_repeated(schedule: Schedule, step: Convert, flow: Flow, loops: int, twice: _Twice) -> Iterable[Collective]:
    """What brings an operand of a recomputed turn again: once for its derivatives, once for every loop around it."""
    if not step.again or step.result not in flow.live:
        return
    for brought in twice.passes(step.result, loops):
        for found in _of_changes(schedule, step.source, step.changes, step.path, False, brought):
            yield replace(found, backward=True)


def _of_changes(
    schedule: Schedule,
    source: int,
    changes: Sequence[Change],
    path: str,
    smooth: bool,
    seen: set[Any],
    leading: int = 1,
    again: bool = False,
) -> Iterable[Collective]:
    """What changes of a value send: forward, `again` where the backward pass makes them once more, and transposed."""
    slot = schedule.slots[source]
    mesh, unit, shape = schedule.mesh, leading * slot.type.dtype.itemsize, slot.local_shape
    for number, change in enumerate(changes):
        match change:
            case Cast(axes):
                if smooth:
                    yield Collective("all-reduce", axes, unit * math.prod(shape), path, backward=True)
            case Slice(axis, cut, _, alike):
                if smooth and alike:
                    others = math.prod(size for other, size in enumerate(shape) if other != axis)
                    full = unit * others * cut.block * mesh.size(cut.axes)
                    part = _part((*shape[:axis], cut.block, *shape[axis + 1 :]), axis, leading)
                    yield Collective("all-gather", cut.axes, full, path, backward=True, part=part)
            case Share(axes):
                yield Collective("all-reduce", axes, unit * math.prod(shape), path)
            case Gather(axis, axes, _, varying):
                full, part = unit * math.prod(shape) * mesh.size(axes), _part(shape, axis, leading)
                # XLA merges equal gathers, whatever they transpose to.
                key = (source, tuple(map(_forward, changes[: number + 1])))
                if key not in seen:
                    seen.add(key)
                    yield Collective("all-gather", axes, full, path, part=part)
                if again:
                    yield Collective("all-gather", axes, full, path, backward=True, part=part)
                if smooth and varying:
                    yield Collective("reduce-scatter", axes, full, path, backward=True, part=part)
            case Exchange(_, target, _, _, cut):
                others = math.prod(size for axis, size in enumerate(shape) if axis != target)
                moved = Collective("all-to-all", cut.axes, unit * others * cut.block * mesh.size(cut.axes), path)
                key = (source, tuple(map(_forward, changes[: number + 1])))
                if key not in seen:
                    seen.add(key)
                    yield moved
                yield from [replace(moved, backward=True)] * (again + smooth)
            case Deal(_, cut):
                moved = Collective("all-to-all", cut.axes, unit * math.prod(shape), path)
                key = (source, tuple(map(_forward, changes[: number + 1])))
                if key not in seen:
                    seen.add(key)
                    yield moved
                yield from [replace(moved, backward=True)] * (again + smooth)
            case Overlap(axis, had, cut, _):
                others = math.prod(size for other, size in enumerate(shape) if other != axis)
                drift, place = drifts(had, cut), (source, tuple(map(_forward, changes[:number])), axis, cut.axes)
                # Some permutation may be one of another exchange of the value, where one of both is told in sums.
                bound = any((place, each) in seen for each in ((True, False) if drift else (True,)))
                for hop in sent_hops(change, mesh):
                    permuted, moved = hop.axes(cut.axes, mesh), unit * others * hop.length
                    sent = Collective("collective-permute", permuted, moved, path, hop.alike, alike=hop.alike)
                    # XLA merges equal permutations, whatever becomes of what arrives.
                    key = (*place, hop.key)
                    if key not in seen:
                        seen.add(key)
                        yield replace(sent, bound=bound)
                    yield from [replace(sent, backward=True)] * (again + smooth)
                seen.add((place, drift))
            case _:
                pass
        shape = changed_shape(shape, change, mesh)


def _part(shape: Sequence[int], axis: int, leading: int = 1) -> tuple[int, ...]:
    """The shape of one device's part, its `axis` first, then what a loop stacks in front."""
    stacked = (leading,) if leading > 1 else ()
    return (shape[axis], *stacked, *shape[:axis], *shape[axis + 1 :])


def _of_gathers(schedule: Schedule, step: Run, flow: Flow, seen: set[Any], loops: int) -> Iterable[Collective]:
    """What an operation gathers itself, in the backward pass again where its derivative needs the value.

    Loops in time run it again too, each once, unless they keep its result, which other devices have added to.
    """
    if not step.gathers:
        return
    cuts = dict(step.cuts)
    is_kept = any(dim in cuts for dim in schedule.graph.shaped(step.node).signature.fold_dims)
    reruns = 0 if is_kept or not any(map(flow.carries_gradient, step.results)) else loops
    used = value_dependence(schedule.graph, step.node)
    live = [number for number, slot in enumerate(step.results) if slot in flow.live]
    back = [
        place
        for place, slot in enumerate(step.operands)
        if flow.carries_gradient(slot) and _is_reached(schedule, step, place, flow)
    ]
    for place, changes in step.gathers:
        if any(used[number][place] for number in live):
            again = any(derivative_needs(schedule.graph, step.node, direction, place) for direction in back)
            smooth = place in back
            source = step.operands[place]
            yield from _of_changes(schedule, source, changes, step.path, smooth, seen, again=again)
            for found in [*_of_changes(schedule, source, changes, step.path, False, set())] * reruns:
                # One of the loops may keep the result: how many do not, JAX decides.
                yield replace(found, backward=True, bound=found.bound or step.kept)


def _is_reached(schedule: Schedule, step: Run, place: int, flow: Flow) -> bool:
    """Whether a gradient that arrives at a result goes on to an operand."""
    matrix = derivative_dependence(schedule.graph, step.node)
    return any(row[place] and slot in flow.useful for slot, row in zip(step.results, matrix, strict=True))


def _forward(change: Any) -> Any:
    return replace(change, varying=True) if isinstance(change, Gather) else change


def _of_run(schedule: Schedule, step: Run | Finish, flow: Flow, turning: Turning) -> Iterable[Collective]:
    shaped, cuts, mesh = schedule.graph.shaped(step.node), dict(step.cuts), schedule.mesh
    if isinstance(step, Finish) and shaped.operation.over is not None:
        yield from _of_totals(schedule, step, flow, turning)
        return
    if isinstance(step, Run) and step.carried:
        # Loops add its state up, whose leaves may be fewer than the results; a `Finish` sends it.
        return
    live = [number for number in range(len(shaped.results)) if step.results[number] in flow.live]
    smooth = any(flow.carries_gradient(slot) for slot in step.results)
    folded = in_space(fold_axes(shaped, cuts))
    if not live or folds_nothing(shaped):
        return
    if step.scatter is not None:
        (state,), _ = local_state(shaped, cuts)
        others = math.prod(size for axis, size in enumerate(state.shape) if axis != step.scatter.axis)
        size = others * step.scatter.cut.block * mesh.size(folded) * state.dtype.itemsize
        axis, block = step.scatter.axis, step.scatter.cut.block
        part = _part((*state.shape[:axis], block, *state.shape[axis + 1 :]), axis)
        yield Collective("reduce-scatter", folded, size, step.path, part=part)
        if smooth:
            yield Collective("all-gather", folded, size, step.path, backward=True, part=part)
    else:
        operands = [schedule.graph.type_of(ref).struct for ref in schedule.graph.nodes[step.node].operands]
        sending: Iterable[Sent] = ()
        if folded:
            sending = sent_by_fold(shaped, operands, cuts, mesh, live)
        elif isinstance(step, Run) and shaped.operation.over in cuts:
            sending = sent_by_scan(shaped, cuts, mesh, live)
        yield from _of_sent(schedule, step, sending, smooth, turning)


def _of_sent(
    schedule: Schedule, step: Run | Finish, sending: Iterable[Sent], smooth: bool, turning: Turning
) -> Iterable[Collective]:
    for sent in sending:
        still = sends_still(schedule, step, sent.leaves, turning)
        yield Collective(sent.kind, sent.axes, sent.bytes, step.path, bound=still)
        if sent.backward is not None and smooth and not _smooth_leaves(schedule, step).isdisjoint(sent.leaves):
            yield Collective(sent.backward, sent.axes, sent.bytes, step.path, backward=True, bound=still)


def _smooth_leaves(schedule: Schedule, step: Run | Finish) -> set[int]:
    """The leaves of a state that have a derivative: the maximum beside a scaled sum is only what it is scaled by."""
    sizes = local_sizes(schedule.graph.shaped(step.node), dict(step.cuts))
    rows = enumerate(state_derivative_dependence(schedule.graph, step.node, sizes))
    return {leaf for leaf, row in rows if any(row)}


def _of_totals(schedule: Schedule, step: Finish, flow: Flow, turning: Turning) -> Iterable[Collective]:
    """The exchange between the two passes of a scan over the mesh and in time."""
    if not any(slot in flow.live for slot in step.results):
        return
    shaped = schedule.graph.shaped(step.node)
    smooth = any(flow.carries_gradient(slot) for slot in step.results)
    live = sorted(_live_results(schedule, step.node, flow))
    sending = sent_by_scan(shaped, dict(step.cuts), schedule.mesh, live, in_turns=True)
    yield from _of_sent(schedule, step, sending, smooth, turning)


def _live_results(schedule: Schedule, node: int, flow: Flow) -> set[int]:
    """The results of a scan that anybody needs; loops in time run it, more than once where one finds totals first."""
    found = set[int]()
    for step in schedule.steps:
        if isinstance(step, Run) and step.node == node:
            results = step.results[: len(schedule.graph.shaped(node).results)]
            found |= {number for number, slot in enumerate(results) if slot in flow.live}
        elif isinstance(step, Region):
            found |= _live_results(step.body, node, flow_of_region(step, flow))
    return found


def _of_region(
    schedule: Schedule, step: Region, flow: Flow, loops: int, turning: Turning, seen: set[Any]
) -> Iterator[tuple[Place, Collective]]:
    turns, ring = step.turns(schedule.mesh), ring_of(step.axis)
    for position in step.rotating:
        slot = step.operands[position]
        if ring is not None and slot in flow.live:
            value = schedule.slots[slot]
            moved = value.local_bytes
            # Between two devices no loop is left, and XLA merges equal rotations of several rings.
            key = (slot, "rotated", ring)
            still = any(slot not in turns.values for turns in turning)
            sent = Collective("collective-permute", (ring,), moved, step.path, turns - 1, bound=still)
            if turns > 2 or key not in seen:
                yield (), sent
            seen.add(key)
            if flow.carries_gradient(slot):
                yield (), replace(sent, backward=True)
    inner = flow_of_region(step, flow)
    for place in step.handed:
        yield from _here(_of_handing_on(step, step.body.inputs[place], inner, turns))
    for inside, found in _of(step.body, inner, loops + 1, turning_in(step, turning)):
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
    step: Repeat, flow: Flow, loops: int, turning: Turning, outside: set[Any]
) -> Iterator[tuple[Place, Collective]]:
    if step.length == 0:
        return
    body, inner, first = step.body, flow_of_body(step, flow), step.carries + len(step.axes)
    inside_turning = turning_in(step, turning)
    around = inside_turning[:-1]
    stacked = set(body.inputs[step.carries : first])
    # What comes before the loop stands beside it: an equal gather of what is captured is one.
    captured = dict(zip(body.inputs[first:], step.operands[first:], strict=True))
    seen = {(slot, *rest) for slot, out in captured.items() for source, *rest in outside if source == out}
    for early in step.prologue:
        leading = step.length if early.source in stacked else 1
        if early.source in stacked:
            stacked.add(early.result)
        # It is no step of the loop's own turns, and may be the same in all turns of a loop around.
        for found in _of_convert(body, early, inner, seen, leading):
            still = is_still(body, early, around) or (found.backward and passes_still(early, around))
            yield (), replace(found, bound=found.bound or still)
    outside.update((captured[source], *rest) for source, *rest in seen if source in captured)
    for inside, found in _of(body, inner, loops + step.remat, inside_turning):
        # How many turns a condition leaves depends on data.
        yield inside, replace(found, times=found.times * step.length, bound=found.bound or step.until)
