"""What operations send: what they gather, states of folds that are merged, totals of scans."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tapestry_jax.planning.derivatives.gradients import (
    derivative_dependence,
    derivative_needs,
    state_derivative_dependence,
    value_dependence,
)
from tapestry_jax.planning.folding.merges import local_sizes, local_state
from tapestry_jax.planning.folding.sent import Sent
from tapestry_jax.planning.folding.traffic import sent_by_fold, sent_by_scan
from tapestry_jax.planning.geometry.layout import dense_bytes
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.planning.prediction.conversions import part_of, sent_by_changes
from tapestry_jax.planning.prediction.flow import Flow, flow_of_region
from tapestry_jax.planning.prediction.turning import Turning, sends_still
from tapestry_jax.planning.scheduling.reads import fold_axes, folds_nothing
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Run, Schedule


def sent_by_gathers(
    schedule: Schedule, step: Run, flow: Flow, seen: set[Any], loops: int, maybe: int = 0
) -> Iterable[Collective]:
    """What an operation gathers itself, in the backward pass again where its derivative needs the value.

    Loops in time run it again too, each once, or `maybe` some of them not, unless they keep its result, which other
    devices have added to.
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
            yield from sent_by_changes(schedule, source, changes, step.path, smooth, seen, again=again)
            for number in range(reruns):
                for found in sent_by_changes(schedule, source, changes, step.path, False, set()):
                    # One of the loops may keep the result: how many do not, JAX decides.
                    yield replace(found, backward=True, bound=found.bound or step.kept or number < maybe)


def _is_reached(schedule: Schedule, step: Run, place: int, flow: Flow) -> bool:
    """Whether a gradient that arrives at a result goes on to an operand."""
    matrix = derivative_dependence(schedule.graph, step.node)
    return any(row[place] and slot in flow.useful for slot, row in zip(step.results, matrix, strict=True))


def sent_by_run(schedule: Schedule, step: Run | Finish, flow: Flow, turning: Turning = ()) -> Iterable[Collective]:
    """What one operation sends by itself, beside what it gathers.

    Args:
      schedule: that has its slots.
      step: the operation, or the end of one that loops carry.
      flow: through it.
      turning: the loops around it; by default it is asked for as if it stood alone.
    """
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
        size = dense_bytes(others * step.scatter.cut.block * mesh.size(folded), state.dtype)
        axis, block = step.scatter.axis, step.scatter.cut.block
        part = part_of((*state.shape[:axis], block, *state.shape[axis + 1 :]), axis)
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
