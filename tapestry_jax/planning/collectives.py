"""What a schedule communicates: kind, mesh axes, bytes per device, and the operation that causes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from combinators.shaped import Shaped
from tapestry_jax.planning.changes import Cast, Exchange, Gather, changed_shape
from tapestry_jax.planning.folds import local_state, mapped_frame, merges
from tapestry_jax.planning.gradients import dependence, differentiated, is_inexact
from tapestry_jax.planning.layout import Cut
from tapestry_jax.planning.mesh_shape import MeshShape
from tapestry_jax.planning.schedule import Convert, Repeat, Run, Schedule


@dataclass(frozen=True)
class Collective:
    """One collective of the compiled program.

    Attributes:
      kind: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all` or `collective-permute`.
      axes: the mesh axes.
      bytes: per device and execution: the larger of operand and result.
      path: the operation that causes it.
      times: how often it runs.
      backward: whether it belongs to the gradient.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    path: str
    times: int = 1
    backward: bool = False

    def __str__(self) -> str:
        repeated = f" x{self.times}" if self.times > 1 else ""
        phase = " (gradient)" if self.backward else ""
        return f"{self.kind} over {'+'.join(self.axes)}: {self.bytes:,} B{repeated}, {self.path}{phase}"


@dataclass(frozen=True)
class _Flow:
    """Which slots a gradient flows through."""

    forward: frozenset[int]
    useful: frozenset[int]

    def carries(self, slot: int) -> bool:
        return slot in self.forward and slot in self.useful


def collectives(schedule: Schedule, grad: bool | int | Sequence[int] = False) -> tuple[Collective, ...]:
    """The collectives of a schedule, forward and, with `grad`, backward.

    Args:
      schedule: of a plan.
      grad: True for the gradient by every inexact input, or the positions of the arguments to differentiate.
    """
    wanted = differentiated(schedule.graph, grad)
    sources = {schedule.inputs[i] for i in wanted}
    flow = _flow(schedule, sources, set(schedule.outputs))
    return tuple(_of(schedule, flow))


def _of(schedule: Schedule, flow: _Flow) -> Iterable[Collective]:
    seen: set[Any] = set()
    for step in schedule.steps:
        match step:
            case Convert():
                yield from _of_convert(schedule, step, flow, seen)
            case Run():
                yield from _of_run(schedule, step, flow)
            case Repeat():
                yield from _of_repeat(schedule, step, flow)


def _of_convert(
    schedule: Schedule, step: Convert, flow: _Flow, seen: set[Any], leading: int = 1
) -> Iterable[Collective]:
    slot = schedule.slots[step.source]
    mesh, itemsize, shape = schedule.mesh, slot.type.dtype.itemsize, slot.local_shape
    smooth = flow.carries(step.source) and step.result in flow.useful
    for number, change in enumerate(step.changes):
        after = changed_shape(shape, change, mesh)
        size = leading * itemsize * max(math.prod(shape), math.prod(after))
        match change:
            case Cast(axes) if smooth:
                yield Collective("all-reduce", axes, size, step.path, backward=True)
            case Gather(axis, axes, _, varying):
                full = leading * itemsize * math.prod(shape) * mesh.size(axes)
                # XLA merges equal gathers, whatever they transpose to.
                key = (step.source, tuple(_forward(c) for c in step.changes[: number + 1]))
                if key not in seen:
                    seen.add(key)
                    yield Collective("all-gather", axes, full, step.path)
                if smooth and varying:
                    yield Collective("reduce-scatter", axes, full, step.path, backward=True)
            case Exchange(source, target, _, _, cut):
                padded = list(shape)
                padded[target] = cut.block * mesh.size(cut.axes)
                moved = leading * itemsize * math.prod(padded)
                yield Collective("all-to-all", cut.axes, moved, step.path)
                if smooth:
                    yield Collective("all-to-all", cut.axes, moved, step.path, backward=True)
            case _:
                pass
        shape = after


def _forward(change: Any) -> Any:
    return replace(change, varying=True) if isinstance(change, Gather) else change


def _of_run(schedule: Schedule, step: Run, flow: _Flow) -> Iterable[Collective]:
    shaped, cuts = schedule.graph.shaped(step.node), dict(step.cuts)
    folded = tuple(axis for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes)
    smooth = any(flow.carries(slot) for slot in step.results)
    if folded:
        yield from _of_fold(schedule, step, shaped, cuts, folded, smooth)
    elif shaped.operation.over in cuts:
        assert shaped.operation.over is not None
        yield from _of_scan(schedule.mesh, step, shaped, cuts, shaped.operation.over, smooth)


def _of_fold(
    schedule: Schedule, step: Run, shaped: Shaped, cuts: dict[str, Cut], folded: tuple[str, ...], smooth: bool
) -> Iterable[Collective]:
    state, carrier = local_state(shaped, cuts)
    mesh = schedule.mesh
    if step.scatter is not None:
        full = list(state[0].shape)
        full[step.scatter.axis] = step.scatter.cut.block * mesh.size(folded)
        size = math.prod(full) * state[0].dtype.itemsize
        yield Collective("reduce-scatter", folded, size, step.path)
        if smooth:
            yield Collective("all-gather", folded, size, step.path, backward=True)
        return
    assert shaped.operation.monoid is not None
    for merge in merges(shaped.operation.monoid, shaped.state_tree):
        leaves = [state[i] for i in merge.leaves]
        axes = [carrier[i] for i in merge.leaves]
        if merge.kind == "frame":
            frame = mapped_frame(merge, axes, leaves)
            summary = jax.eval_shape(frame.summary, leaves)
            reference = jax.eval_shape(frame.at, summary)
            for leaf in (*summary, *jax.eval_shape(frame.express, leaves, reference)):
                yield Collective("all-reduce", folded, nbytes(leaf), step.path)
        elif merge.kind == "ordered":
            for leaf in leaves:
                yield Collective("all-gather", folded, nbytes(leaf) * mesh.size(folded), step.path)
        else:
            for leaf in leaves:
                logical = merge.kind in ("or", "and")
                yield Collective("all-reduce", folded, math.prod(leaf.shape) if logical else nbytes(leaf), step.path)
                if merge.kind in ("max", "min") and smooth and is_inexact(leaf.dtype):
                    # How many devices attain the extremum, among whom the gradient is shared.
                    yield Collective("all-reduce", folded, nbytes(leaf), step.path, backward=True)


def _of_scan(
    mesh: MeshShape, step: Run, shaped: Shaped, cuts: dict[str, Cut], over: str, smooth: bool
) -> Iterable[Collective]:
    totals, _ = local_state(shaped, cuts, without=over)
    axes = cuts[over].axes
    rounds = 1 + len(scan_distances(mesh.size(axes)))
    for leaf in totals:
        yield Collective("collective-permute", axes, nbytes(leaf), step.path, rounds)
        if smooth and is_inexact(leaf.dtype):
            yield Collective("collective-permute", axes, nbytes(leaf), step.path, rounds, backward=True)


def _of_repeat(schedule: Schedule, step: Repeat, flow: _Flow) -> Iterable[Collective]:
    body = step.body
    inner = _body_flow(schedule, step, flow)
    stacked = set(body.inputs[step.carries : step.carries + len(step.axes)])
    seen: set[Any] = set()
    for early in step.prologue:
        leading = step.length if early.source in stacked else 1
        if early.source in stacked:
            stacked.add(early.result)
        for found in _of_convert(body, early, inner, seen, leading):
            yield replace(
                found, path=f"{step.path}/{found.path}" if not found.path.startswith(step.path) else found.path
            )
    for found in _of(body, inner):
        yield replace(found, times=found.times * step.length)


def scan_distances(devices: int) -> list[int]:
    """The distances of a mesh scan's exchanges after the first one: 1, 2, 4, ... below `devices - 1`."""
    distances: list[int] = []
    distance = 1
    while distance < devices - 1:
        distances.append(distance)
        distance *= 2
    return distances


def nbytes(struct: Any) -> int:
    """The bytes of a dense array."""
    return math.prod(struct.shape) * np.dtype(struct.dtype).itemsize


# The flow of gradients


def _flow(schedule: Schedule, sources: set[int], sinks: set[int]) -> _Flow:
    """Forward from the differentiated inputs, backward from the outputs."""
    if not sources:
        return _Flow(frozenset(), frozenset())
    forward = set(sources)
    for step in schedule.steps:
        for operand, result in _edges(schedule, step, forward):
            if operand in forward:
                forward.add(result)
    useful = {slot for slot in sinks if is_inexact(schedule.slots[slot].type.dtype)}
    for step in reversed(schedule.steps):
        for operand, result in _edges(schedule, step, forward):
            if result in useful:
                useful.add(operand)
    return _Flow(frozenset(forward), frozenset(useful))


def _edges(schedule: Schedule, step: Any, forward: set[int]) -> list[tuple[int, int]]:
    """Pairs of slots between which a derivative flows."""
    match step:
        case Convert():
            return [(step.source, step.result)]
        case Run():
            matrix = dependence(schedule.graph, step.node)
            return [
                (operand, result)
                for operand, row in zip(step.operands, matrix, strict=True)
                for result, depends in zip(step.results, row, strict=True)
                if depends
            ]
        case _:
            matrix = _loop_matrix(step)
            return [(step.operands[i], step.results[j]) for i, j in matrix]


def _loop_matrix(step: Repeat) -> list[tuple[int, int]]:
    """Operand and result positions of a loop between which a derivative flows, through the carries too."""
    body = step.body
    reach: dict[int, set[int]] = {}
    for number, slot in enumerate(body.inputs):
        if not is_inexact(body.slots[slot].type.dtype):
            reach[number] = set()
            continue
        flow = _forward_of(step, {slot})
        reach[number] = {j for j, out in enumerate(body.outputs) if out in flow}
    for _ in range(step.carries):
        for found in reach.values():
            for carry in [j for j in found if j < step.carries]:
                found |= reach[carry]
    return [(i, j) for i, found in reach.items() for j in found]


def _forward_of(step: Repeat, sources: set[int]) -> set[int]:
    forward = set(sources)
    for inner in (*step.prologue, *step.body.steps):
        for operand, result in _edges(step.body, inner, forward):
            if operand in forward:
                forward.add(result)
    return forward


def _body_flow(schedule: Schedule, step: Repeat, flow: _Flow) -> _Flow:
    """The flow inside a loop: what is carried flows on from turn to turn."""
    body = step.body
    sources = {slot for slot, outer in zip(body.inputs, step.operands, strict=True) if flow.carries(outer)}
    sinks = {slot for slot, outer in zip(body.outputs, step.results, strict=True) if outer in flow.useful}
    forward: set[int] = set()
    useful: set[int] = set()
    for _ in range(step.carries + 1):
        forward = _forward_of(step, sources)
        sources |= {body.inputs[c] for c in range(step.carries) if body.outputs[c] in forward}
        useful = set(sinks)
        for inner in reversed((*step.prologue, *body.steps)):
            for operand, result in _edges(body, inner, forward):
                if result in useful:
                    useful.add(operand)
        sinks |= {body.outputs[c] for c in range(step.carries) if body.inputs[c] in useful}
    return _Flow(frozenset(forward), frozenset(useful))
