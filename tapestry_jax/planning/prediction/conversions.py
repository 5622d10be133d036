"""What changes of layout send: forwards, where the backward pass makes them again, and transposed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from combinators.frozen import changed
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
from tapestry_jax.planning.geometry.hops import sent_hops
from tapestry_jax.planning.geometry.layout import dense_bytes
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.planning.prediction.flow import Flow
from tapestry_jax.planning.scheduling.schedule import Convert, Schedule


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
    if step.result not in flow.live:
        return
    smooth = flow.carries_gradient(step.source) and step.result in flow.useful
    yield from sent_by_changes(schedule, step.source, step.changes, step.path, smooth, seen, leading)


def sent_by_changes(
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
    mesh, shape = schedule.mesh, slot.local_shape

    def size(cells: int) -> int:
        return dense_bytes(leading * cells, slot.type.dtype)

    for number, change in enumerate(changes):
        match change:
            case Cast(axes):
                if smooth:
                    yield Collective("all-reduce", axes, size(math.prod(shape)), path, backward=True)
            case Slice(axis, cut, _, alike):
                if smooth and alike:
                    others = math.prod(each for other, each in enumerate(shape) if other != axis)
                    full = size(others * cut.block * mesh.size(cut.axes))
                    part = part_of((*shape[:axis], cut.block, *shape[axis + 1 :]), axis, leading)
                    yield Collective("all-gather", cut.axes, full, path, backward=True, part=part)
            case Share(axes):
                yield Collective("all-reduce", axes, size(math.prod(shape)), path)
            case Gather(axis, axes, _, varying):
                full, part = size(math.prod(shape) * mesh.size(axes)), part_of(shape, axis, leading)
                # XLA merges equal gathers, whatever they transpose to.
                key = (source, _forwards(changes[: number + 1]))
                if key not in seen:
                    seen.add(key)
                    yield Collective("all-gather", axes, full, path, part=part)
                if again:
                    yield Collective("all-gather", axes, full, path, backward=True, part=part)
                if smooth and varying:
                    yield Collective("reduce-scatter", axes, full, path, backward=True, part=part)
            case Exchange(_, target, _, _, cut):
                others = math.prod(each for axis, each in enumerate(shape) if axis != target)
                moved = Collective("all-to-all", cut.axes, size(others * cut.block * mesh.size(cut.axes)), path)
                key = (source, _forwards(changes[: number + 1]))
                if key not in seen:
                    seen.add(key)
                    yield moved
                yield from [changed(moved, backward=True)] * (again + smooth)
            case Deal(_, cut):
                moved = Collective("all-to-all", cut.axes, size(math.prod(shape)), path)
                key = (source, _forwards(changes[: number + 1]))
                if key not in seen:
                    seen.add(key)
                    yield moved
                yield from [changed(moved, backward=True)] * (again + smooth)
            case Overlap(axis, had, cut, _):
                others = math.prod(each for other, each in enumerate(shape) if other != axis)
                drift, place = drifts(had, cut), (source, _forwards(changes[:number]), axis, cut.axes)
                # Some permutation may be one of another exchange of the value, where one of both is told in sums.
                bound = any((place, each) in seen for each in ((True, False) if drift else (True,)))
                for hop in sent_hops(change, mesh):
                    permuted, moved = hop.axes(cut.axes, mesh), size(others * hop.length)
                    sent = Collective("collective-permute", permuted, moved, path, hop.alike, alike=hop.alike)
                    # XLA merges equal permutations, whatever becomes of what arrives.
                    key = (*place, hop.key)
                    if key not in seen:
                        seen.add(key)
                        yield changed(sent, bound=bound)
                    yield from [changed(sent, backward=True)] * (again + smooth)
                seen.add((place, drift))
            case _:
                pass
        shape = changed_shape(shape, change, mesh)


def part_of(shape: Sequence[int], axis: int, leading: int = 1) -> tuple[int, ...]:
    """The shape of one device's part, its `axis` first, then what a loop stacks in front."""
    stacked = (leading,) if leading > 1 else ()
    return (shape[axis], *stacked, *shape[:axis], *shape[axis + 1 :])


def _forwards(changes: Sequence[Change]) -> tuple[Change, ...]:
    """What of changes XLA sees forwards: neither casts nor what gathers transpose to."""
    seen = (change for change in changes if not isinstance(change, Cast))
    return tuple(
        changed(change, varying=True) if isinstance(change, Gather) and not change.varying else change
        for change in seen
    )
