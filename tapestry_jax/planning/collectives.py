"""What a schedule communicates: kind, mesh axes, bytes per device, and the operation that causes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapestry_jax.planning.changes import Cast, Exchange, Gather, Overlap, changed_shape
from tapestry_jax.planning.flow import Flow, flow_of, flow_of_body
from tapestry_jax.planning.folds import local_state
from tapestry_jax.planning.gradients import differentiated
from tapestry_jax.planning.halo import permuted_axes
from tapestry_jax.planning.merging import sent_by_fold, sent_by_scan
from tapestry_jax.planning.schedule import Convert, Repeat, Run, Schedule
from tapestry_jax.planning.sent import Sent


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


def collectives(schedule: Schedule, grad: bool | int | Sequence[int] = False) -> tuple[Collective, ...]:
    """The collectives of a schedule, forward and, with `grad`, backward.

    Args:
      schedule: of a plan.
      grad: True for the gradient by every inexact input, or the positions of the arguments to differentiate.
    """
    sources = {schedule.inputs[i] for i in differentiated(schedule.graph, grad)}
    # XLA drops what moves no bytes.
    return tuple(found for found in _of(schedule, flow_of(schedule, sources)) if found.bytes)


def _of(schedule: Schedule, flow: Flow) -> Iterable[Collective]:
    seen: set[Any] = set()
    for step in schedule.steps:
        match step:
            case Convert():
                yield from _of_convert(schedule, step, flow, seen)
            case Run():
                yield from _of_run(schedule, step, flow)
            case Repeat():
                yield from _of_repeat(step, flow)


def _of_convert(
    schedule: Schedule, step: Convert, flow: Flow, seen: set[Any], leading: int = 1
) -> Iterable[Collective]:
    if step.result not in flow.live:
        return
    slot = schedule.slots[step.source]
    mesh, unit, shape = schedule.mesh, leading * slot.type.dtype.itemsize, slot.local_shape
    smooth = flow.carries_gradient(step.source) and step.result in flow.useful
    for number, change in enumerate(step.changes):
        match change:
            case Cast(axes):
                if smooth:
                    yield Collective("all-reduce", axes, unit * math.prod(shape), step.path, backward=True)
            case Gather(_, axes, _, varying):
                full = unit * math.prod(shape) * mesh.size(axes)
                # XLA merges equal gathers, whatever they transpose to.
                key = (step.source, tuple(map(_forward, step.changes[: number + 1])))
                if key not in seen:
                    seen.add(key)
                    yield Collective("all-gather", axes, full, step.path)
                if smooth and varying:
                    yield Collective("reduce-scatter", axes, full, step.path, backward=True)
            case Exchange(_, target, _, _, cut):
                others = math.prod(size for axis, size in enumerate(shape) if axis != target)
                moved = unit * others * cut.block * mesh.size(cut.axes)
                yield Collective("all-to-all", cut.axes, moved, step.path)
                if smooth:
                    yield Collective("all-to-all", cut.axes, moved, step.path, backward=True)
            case Overlap(axis, _, cut, _):
                others = math.prod(size for other, size in enumerate(shape) if other != axis)
                for hop in change.exchange(mesh).hops:
                    moved = permuted_axes(hop.pairs, cut.axes, mesh)
                    sent = unit * others * hop.length
                    # XLA merges equal permutations, whatever becomes of what arrives.
                    key = (step.source, tuple(map(_forward, step.changes[:number])), axis, cut.axes, hop.key)
                    if key not in seen:
                        seen.add(key)
                        yield Collective("collective-permute", moved, sent, step.path)
                    if smooth:
                        yield Collective("collective-permute", moved, sent, step.path, backward=True)
            case _:
                pass
        shape = changed_shape(shape, change, mesh)


def _forward(change: Any) -> Any:
    return replace(change, varying=True) if isinstance(change, Gather) else change


def _of_run(schedule: Schedule, step: Run, flow: Flow) -> Iterable[Collective]:
    shaped, cuts, mesh = schedule.graph.shaped(step.node), dict(step.cuts), schedule.mesh
    live = [number for number, slot in enumerate(step.results) if slot in flow.live]
    smooth = any(flow.carries_gradient(slot) for slot in step.results)
    folded = tuple(axis for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes)
    if not live or any(shaped.sizes[dim] == 0 for dim in shaped.signature.fold_dims):
        return
    if step.scatter is not None:
        (state,), _ = local_state(shaped, cuts)
        others = math.prod(size for axis, size in enumerate(state.shape) if axis != step.scatter.axis)
        size = others * step.scatter.cut.block * mesh.size(folded) * state.dtype.itemsize
        yield Collective("reduce-scatter", folded, size, step.path)
        if smooth:
            yield Collective("all-gather", folded, size, step.path, backward=True)
    else:
        operands = [schedule.slots[slot].type.struct for slot in step.operands]
        sending: Iterable[Sent] = ()
        if folded:
            sending = sent_by_fold(shaped, operands, cuts, mesh, live)
        elif shaped.operation.over in cuts:
            sending = sent_by_scan(shaped, cuts, mesh, live)
        for sent in sending:
            yield Collective(sent.kind, sent.axes, sent.bytes, step.path)
            if sent.backward is not None and smooth:
                yield Collective(sent.backward, sent.axes, sent.bytes, step.path, backward=True)


def _of_repeat(step: Repeat, flow: Flow) -> Iterable[Collective]:
    if step.length == 0:
        return
    body, inner = step.body, flow_of_body(step, flow)
    stacked = set(body.inputs[step.carries : step.carries + len(step.axes)])
    seen: set[Any] = set()
    for early in step.prologue:
        leading = step.length if early.source in stacked else 1
        if early.source in stacked:
            stacked.add(early.result)
        yield from _of_convert(body, early, inner, seen, leading)
    for found in _of(body, inner):
        yield replace(found, times=found.times * step.length)
