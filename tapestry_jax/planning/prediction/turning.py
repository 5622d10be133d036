"""What differs from turn to turn of a loop: what is sent of all else may be moved out of the loop, and sent once.

JAX does so where it differentiates a `lax.scan`, XLA elsewhere. A value differs if it is sliced or carried by the loop,
or is made of a value that does, or by an operation that knows its turn; a gradient, if it arrives so or is multiplied
by a value that does.
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
    state_dependence,
    value_dependence,
)
from tapestry_jax.planning.folding.merges import local_sizes
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Step


@dataclass(frozen=True)
class Turns:
    """What differs from turn to turn of one loop around a schedule.

    Attributes:
      values: slots.
      gradients: slots whose gradient does.
    """

    values: frozenset[int]
    gradients: frozenset[int]


Turning = tuple[Turns, ...]
"""For every loop around a schedule, the outermost first."""


def is_still(step: Step, turning: Turning) -> bool:
    """Whether a step does the same in every turn of one of the loops around it."""
    return any(turns.values.isdisjoint(step.operands) for turns in turning)


def passes_still(step: Step, turning: Turning) -> bool:
    """Whether the gradient that arrives at a step is the same in every turn of one of the loops around it."""
    return any(turns.gradients.isdisjoint(step.results) for turns in turning)


def _swings(schedule: Schedule, step: Step, values: Collection[int], gradients: Collection[int]) -> bool:
    """Whether the gradient of any operand of a step differs from turn to turn, as these values and gradients do."""
    if any(result in gradients for result in step.results):
        return True
    if isinstance(step, Convert):
        return False
    if not isinstance(step, Run):
        return any(slot in values for slot in step.operands)
    graph = schedule.graph
    places = range(len(graph.nodes[step.node].operands))
    differ = [place for place in places if step.operands[place] in values]
    smooth = [place for place in places if is_inexact(schedule.slots[step.operands[place]].type.dtype)]
    return any(derivative_needs(graph, step.node, direction, value) for direction in smooth for value in differ)


def sends_still(graph: Graph, step: Run | Finish, leaves: Iterable[int], turning: Turning) -> bool:
    """Whether what a fold or scan sends of some leaves of its state is the same in every turn of a loop around it.

    The leaves of a state may differ in this: the weights of a mean of what a loop carries are none that it carries.
    """
    return any(_leaves_turning(graph, step, turns.values).isdisjoint(leaves) for turns in turning)


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
    values = [*(_reached(step, starts) for starts in outer), _reached(step, set(_own(step)))]
    inside = step.results_inside if isinstance(step, Region) else step.body.outputs
    leaving = list(zip(inside, step.results, strict=True))
    ends = [{out for out, result in leaving if result in turns.gradients} for turns in turning]
    found = [*map(_swung, [step] * len(ends), values, ends), _swung(step, values[-1], set(_own_gradients(step)))]
    return tuple(map(Turns, values, found))


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


def _swung(loop: Region | Repeat, values: frozenset[int], starts: set[int]) -> frozenset[int]:
    """The slots of a loop's body whose gradient depends on that of some, or on some values, in the same turn or not."""
    found, carried = set(starts), _carried(loop)
    for _ in range(len(carried) + 1):
        for step in reversed(loop.body.steps):
            if _swings(loop.body, step, values, found):
                found.update(step.operands)
        more = {before for before, after in carried if after in found} - found
        if not more:
            break
        found |= more
    return frozenset(found)


def _own(step: Region | Repeat) -> Iterator[int]:
    body = step.body
    if isinstance(step, Repeat):
        yield from body.inputs[: step.carries + len(step.axes)]
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
    for place, (operand, slot) in enumerate(zip(arrays, step.operands, strict=False)):
        windows = {name for each in operand.axes if each.is_window for name in each.names}
        told = derivative_coordinates(graph, step.node, place, local_sizes(shaped, dict(step.cuts)))
        if not cut.isdisjoint(windows | told):
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


def _reached(loop: Region | Repeat, starts: set[int]) -> frozenset[int]:
    """The slots of a loop's body that depend on some of them, in the same turn or a later one."""
    found, carried = set(starts), _carried(loop)
    early = loop.prologue if isinstance(loop, Repeat) else ()
    for _ in range(len(carried) + 1):
        for step in (*early, *loop.body.steps):
            if not found.isdisjoint(step.operands):
                found.update(_results_reached(loop.body.graph, step, found))
        more = {after for before, after in carried if before in found} - found
        if not more:
            break
        found |= more
    return frozenset(found)


def _results_reached(graph: Graph, step: Step, found: set[int]) -> Iterable[int]:
    """The results of a step that depend on the slots `found`; where that is not looked into, all of them."""
    if isinstance(step, Region):
        entering = zip(step.body.inputs, step.operands, strict=False)
        inside = _reached(step, {inner for inner, slot in entering if slot in found})
        return [slot for inner, slot in zip(step.results_inside, step.results, strict=True) if inner in inside]
    if isinstance(step, Run) and graph.shaped(step.node).operation.over is None:
        if step.carried:
            return [step.results[leaf] for leaf in _leaves_turning(graph, step, found)]
        rows = zip(step.results, value_dependence(graph, step.node), strict=True)
        return [result for result, row in rows if _hits(row, step.operands, found)]
    return step.results


def _hits(row: Iterable[bool], operands: Iterable[int], found: Collection[int]) -> bool:
    """Whether something of `found` is among the operands on which a row of a matrix says that something depends."""
    return any(hit and slot in found for hit, slot in zip(row, operands, strict=False))


def _carried(loop: Region | Repeat) -> list[tuple[int, int]]:
    """What a turn of a loop makes, and the input of the next one that it becomes."""
    inputs, outputs = loop.body.inputs, loop.body.outputs
    if isinstance(loop, Repeat):
        return list(zip(outputs[: loop.carries], inputs, strict=False))
    folded, scanned = (sum(leaves for _, leaves in kind) for kind in (loop.folds, loop.scans))
    totals = list(zip(outputs[folded : folded + scanned], inputs[len(inputs) - scanned :], strict=True))
    handed = zip(outputs[folded + scanned :], (inputs[place] for place in loop.handed), strict=False)
    return [*totals, *handed]
