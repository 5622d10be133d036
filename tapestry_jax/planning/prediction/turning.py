"""What differs from turn to turn of a loop: what is sent of all else may be moved out of the loop, and sent once.

JAX does so where it differentiates a `lax.scan`, XLA elsewhere. A value differs if it is sliced by the loop, or carried
and changed, or is made of a value that does, or by an operation that knows its turn; a gradient, if it arrives so or is
multiplied by a value that does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import is_inexact
from combinators.monoids import Sum
from tapestry_jax.planning.derivatives.gradients import (
    derivative_coordinates,
    derivative_needs,
    merged_leaves,
    presents_linearly,
    state_dependence,
    values_read,
)
from tapestry_jax.planning.folding.merges import local_sizes
from tapestry_jax.planning.folding.traffic import uneven_folds
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.scheduling.reads import folds_nothing
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step


@dataclass(frozen=True)
class Reading:
    """How values are followed from step to step.

    Attributes:
      surely: what windows may leave unread is taken to be unread, see `maybe_unread`.
      devices: what differs from device to device is followed, too, though no value is read: coordinates and counts.
    """

    surely: bool = False
    devices: bool = False


@dataclass(frozen=True)
class Turns:
    """What differs from turn to turn of one loop around a schedule.

    Attributes:
      values: slots.
      gradients: slots whose gradient does.
      reading: how values were followed.
    """

    values: frozenset[int]
    gradients: frozenset[int]
    reading: Reading = Reading()


Turning = tuple[Turns, ...]
"""For every loop around a schedule, the outermost first; before them the calls of the program, which are one, too."""


def from_call_to_call(schedule: Schedule, *, surely: bool = False) -> Turns:
    """What differs between calls of a program, or between devices. XLA may know the rest when it compiles.

    Args:
      schedule: of a plan.
      surely: as in `Reading`.
    """
    reading, gradients = Reading(surely, devices=True), set(schedule.outputs)
    values = {slot for slot in schedule.inputs if schedule.slots[slot].has_cells}
    for step in schedule.steps:
        values.update(_results_reached(schedule, step, values, reading))
    for step in reversed(schedule.steps):
        if not gradients.isdisjoint(step.results):
            gradients.update(step.operands)
    return Turns(frozenset(values), frozenset(gradients), reading)


def is_still(schedule: Schedule, step: Step, turning: Turning) -> bool:
    """Whether a step does the same in every turn of one of the loops around it."""
    return any(
        turns.values.isdisjoint(step.operands) and not (turns.reading.devices and _is_told(schedule, step))
        for turns in turning
    )


def passes_still(step: Step, turning: Turning) -> bool:
    """Whether the gradient that arrives at a step is the same in every turn of one of the loops around it."""
    return any(turns.gradients.isdisjoint(step.results) for turns in turning)


def sends_still(schedule: Schedule, step: Run | Finish, leaves: Iterable[int], turning: Turning) -> bool:
    """Whether what a fold or scan sends of some leaves of its state is the same in every turn of a loop around it.

    The leaves of a state may differ in this: the weights of a mean of what a loop carries are none that it carries.
    """
    told = _is_told(schedule, step)
    return any(
        _leaves_turning(schedule.graph, step, turns.values).isdisjoint(leaves)
        for turns in turning
        if not (turns.reading.devices and told)
    )


def _is_told(schedule: Schedule, step: Step) -> bool:
    """Whether an operation knows by coordinates, or by how many indices there are, which device it runs on."""
    if not isinstance(step, Run | Finish):
        return False
    shaped, cuts = schedule.graph.shaped(step.node), dict(step.cuts)
    told = {operand.coordinate for operand in shaped.signature.operands}
    return not told.isdisjoint(cuts) or bool(uneven_folds(shaped, cuts, schedule.mesh))


def _leaves_turning(graph: Graph, step: Run | Finish, slots: frozenset[int] | set[int]) -> set[int]:
    """The leaves of a state of which a device's own part differs from turn to turn, as `slots` do."""
    if isinstance(step, Finish):
        return {leaf for leaf, slot in enumerate(step.operands) if slot in slots}
    rows = enumerate(state_dependence(graph, step.node, local_sizes(graph.shaped(step.node), dict(step.cuts))))
    # The operands come first; totals of scans, which are carried, stand behind them.
    return {leaf for leaf, row in rows if _hits(row, step.operands, slots)}


def turning_in(step: Region | Repeat, turning: Turning) -> Turning:
    """What differs inside of a loop: from turn to turn of the loops around it, and of the loop itself."""
    entering = list(zip(step.body.inputs, step.operands, strict=False))
    outer = [{inner for inner, slot in entering if slot in turns.values} for turns in turning]
    readings = [*(turns.reading for turns in turning), Reading(any(turns.reading.surely for turns in turning))]
    values = [_reached(step, *each) for each in zip((*outer, set(_own(step))), readings, strict=True)]
    leaving = list(zip(_leaving(step), step.results, strict=True))
    ends = [{out for out, result in leaving if result in turns.gradients} for turns in turning]
    starts = (*ends, set(_own_gradients(step)))
    found = [_swung(step, *each) for each in zip(values, starts, readings, strict=True)]
    return tuple(Turns(*each) for each in zip(values, found, readings, strict=True))


def _own_gradients(step: Region | Repeat) -> Iterator[int]:
    """The slots of a loop's body whose gradient differs from turn to turn of the loop itself: not what it adds up."""
    body, first = step.body, 0
    for node, leaves in step.folds if isinstance(step, Region) else ():
        if body.graph.shaped(node).operation.monoid != Sum:
            yield from body.outputs[first : first + leaves]
        first += leaves
    yield from body.outputs[first:]
    if isinstance(step, Region):
        for each in body.steps:
            if isinstance(each, Run | Finish):
                yield from _gradients_by_turn(body, each, step.axis)


def _swung(loop: Region | Repeat, values: frozenset[int], starts: set[int], reading: Reading) -> frozenset[int]:
    """The slots of a loop's body whose gradient depends on that of some, or on some values, in the same turn or not."""
    found, pairs = set(starts), carried(loop)
    for _ in range(len(pairs) + 1):
        for step in reversed(loop.body.steps):
            found.update(_swinging(loop.body, step, values, found, reading))
        more = {before for before, after in pairs if after in found} - found
        if not more:
            break
        found |= more
    return frozenset(found)


def _swinging(
    schedule: Schedule, step: Step, values: Collection[int], gradients: Collection[int], reading: Reading
) -> Iterable[int]:
    """The operands of a step whose gradient differs from turn to turn, as these values and gradients do."""
    graph, arrives = schedule.graph, any(result in gradients for result in step.results)
    match step:
        case Region() | Repeat():
            entering = list(zip(step.body.inputs, step.operands, strict=False))
            inside = _reached(step, {inner for inner, slot in entering if slot in values}, reading)
            leaving = zip(_leaving(step), step.results, strict=True)
            swung = _swung(step, inside, {inner for inner, slot in leaving if slot in gradients}, reading)
            return [slot for inner, slot in entering if inner in swung]
        case Convert():
            return step.operands if arrives else ()
        case Finish():
            is_plain = graph.shaped(step.node).operation.monoid == Sum and presents_linearly(graph, step.node)
            differs = not is_plain and any(slot in values for slot in step.operands)
            return step.operands if arrives or differs else ()
        case Run() if arrives:
            return step.operands
        case Run():
            places = range(len(graph.nodes[step.node].operands))
            differ = [place for place in places if step.operands[place] in values]
            smooth = [place for place in places if is_inexact(schedule.slots[step.operands[place]].type.dtype)]
            return [
                step.operands[direction]
                for direction in smooth
                if any(derivative_needs(graph, step.node, direction, value) for value in differ)
            ]


def _leaving(loop: Region | Repeat) -> tuple[int, ...]:
    """The outputs of a loop's body that become its results, one for each."""
    return loop.results_inside if isinstance(loop, Region) else loop.body.outputs


def _own(step: Region | Repeat) -> Iterator[int]:
    body = step.body
    if isinstance(step, Repeat):
        given = enumerate(body.inputs[: step.carries + len(step.axes)])
        # What every turn hands on as it got it is the same in all of them.
        yield from (slot for place, slot in given if place >= step.carries or body.outputs[place] != slot)
        return
    # Totals of scans, what goes round, and what a stage hands on; chunks are sliced by steps of the body.
    yield from body.inputs[len(step.operands) :]
    yield from (body.inputs[place] for place in (*step.rotating, *step.handed))
    for inner in body.steps:
        if isinstance(inner, Convert) and any(isinstance(c, Slice) and step.axis in c.cut.axes for c in inner.changes):
            yield inner.result
        elif isinstance(inner, Run | Finish) and _by_turn(body, inner, step.axis):
            yield from inner.results


def _by_turn(body: Schedule, step: Run | Finish, axis: str) -> bool:
    """Whether the results of an operation know which turn of a loop it is, beside what it reads."""
    told = {operand.coordinate for operand in body.graph.shaped(step.node).signature.operands}
    return _is_apart(body, step, axis) or not told.isdisjoint(_cut_along(step, axis))


def _gradients_by_turn(body: Schedule, step: Run | Finish, axis: str) -> Iterator[int]:
    """The operands of an operation whose gradient knows which turn of a loop it is.

    It is multiplied by something that a coordinate decides, or dropped where a window leaves the tensor.
    """
    if _is_apart(body, step, axis):
        yield from step.operands
    if isinstance(step, Finish) or _is_apart(body, step, axis):
        return
    graph, shaped, cut = body.graph, body.graph.shaped(step.node), _cut_along(step, axis)
    arrays = [operand for operand in shaped.signature.operands if operand.coordinate is None]
    known = {operand.coordinate for operand in shaped.signature.operands} & cut
    for place, (operand, slot) in enumerate(zip(arrays, step.operands, strict=False)):
        windows = {name for each in operand.axes if each.is_window for name in each.names}
        # Kernels are traced only where they know a coordinate that the loop cuts.
        if not cut.isdisjoint(windows) or (
            known
            and not known.isdisjoint(
                derivative_coordinates(graph, step.node, place, local_sizes(shaped, dict(step.cuts)))
            )
        ):
            yield slot


def _is_apart(body: Schedule, step: Run | Finish, axis: str) -> bool:
    """Whether turns of a loop differ in an operation by what they are: the steps of a scan, or padded blocks."""
    shaped, cut = body.graph.shaped(step.node), _cut_along(step, axis)
    if isinstance(step, Finish) or shaped.operation.over in cut:
        return bool(cut)
    sizes = local_sizes(shaped, dict(step.cuts))
    return any(shaped.sizes[dim] % sizes[dim] for dim in cut)


def _cut_along(step: Run | Finish, axis: str) -> set[str]:
    """The dimensions of an operation that a loop cuts."""
    return {dim for dim, cut in step.cuts if axis in cut.axes}


def _reached(loop: Region | Repeat, starts: set[int], reading: Reading) -> frozenset[int]:
    """The slots of a loop's body that depend on some of them, in the same turn or a later one."""
    found, pairs = set(starts), carried(loop)
    early = loop.prologue if isinstance(loop, Repeat) else ()
    for _ in range(len(pairs) + 1):
        for step in (*early, *loop.body.steps):
            found.update(_results_reached(loop.body, step, found, reading))
        more = {after for before, after in pairs if before in found} - found
        if not more:
            break
        found |= more
    return frozenset(found)


def _results_reached(schedule: Schedule, step: Step, found: set[int], reading: Reading) -> Iterable[int]:
    """The results of a step that depend on the slots `found`."""
    graph = schedule.graph
    match step:
        case Region() | Repeat():
            return _loop_results_reached(step, found, reading)
        case Run() | Finish() if folds_nothing(graph.shaped(step.node)):
            return []
        case Run() | Finish() if reading.devices and _is_told(schedule, step):
            return step.results
        case _ if found.isdisjoint(step.operands):
            return []
        case Convert():
            return step.results
        case Finish() if graph.shaped(step.node).operation.over is not None:
            leaves = _leaves_turning(graph, step, found)
            return [step.results[leaf] for leaf in merged_leaves(graph, step.node, leaves)]
        case Finish():
            # A result that no operand decides is no other one in any state.
            rows = zip(step.results, values_read(graph, step.node, surely=reading.surely, alone=True), strict=True)
            return [result for result, row in rows if any(row)]
        case Run() if step.carried and graph.shaped(step.node).operation.over is None:
            return [step.results[leaf] for leaf in _leaves_turning(graph, step, found)]
        case Run():
            return _values_reached(graph, step, found, reading)


def _values_reached(graph: Graph, step: Run, found: set[int], reading: Reading) -> Iterable[int]:
    """The same of an operation that gives its results, and of a scan in a loop the total so far as well."""
    rows = values_read(graph, step.node, surely=reading.surely, alone=True)
    before = step.operands[len(graph.nodes[step.node].operands) :]
    entered = any(slot in found for slot in before)
    reached = [
        slot for slot, row in zip(step.results, rows, strict=False) if entered or _hits(row, step.operands, found)
    ]
    if not step.carried:
        return reached
    leaves = _leaves_turning(graph, step, found) | {leaf for leaf, slot in enumerate(before) if slot in found}
    totals = step.results[len(rows) :]
    return [*reached, *(totals[leaf] for leaf in merged_leaves(graph, step.node, leaves))]


def _loop_results_reached(loop: Region | Repeat, found: set[int], reading: Reading) -> Iterable[int]:
    """The same of a loop, whose results that it hands through without a turn depend on what they are."""
    if isinstance(loop, Repeat) and not loop.length:
        return [result for slot, result in zip(loop.operands, loop.results, strict=False) if slot in found]
    entering = zip(loop.body.inputs, loop.operands, strict=False)
    inside = _reached(loop, {inner for inner, slot in entering if slot in found}, reading)
    if isinstance(loop, Repeat) and loop.until and loop.body.outputs[0] in inside:
        return loop.results
    return [slot for inner, slot in zip(_leaving(loop), loop.results, strict=True) if inner in inside]


def _hits(row: Iterable[bool], operands: Iterable[int], found: Collection[int]) -> bool:
    """Whether something of `found` is among the operands on which a row of a matrix says that something depends."""
    return any(hit and slot in found for hit, slot in zip(row, operands, strict=False))


def carried(loop: Region | Repeat) -> list[tuple[int, int]]:
    """What a turn of a loop makes, and the input of the next one that it becomes."""
    inputs, outputs = loop.body.inputs, loop.body.outputs
    if isinstance(loop, Repeat):
        return list(zip(outputs[: loop.carries], inputs, strict=False))
    folded, scanned = loop.folded, loop.scanned
    totals = list(zip(outputs[folded : folded + scanned], inputs[len(inputs) - scanned :], strict=True))
    handed = zip(outputs[folded + scanned :], (inputs[place] for place in loop.handed), strict=False)
    return [*totals, *handed]
