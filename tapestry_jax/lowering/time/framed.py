"""A loop in time over states with frames: merged as they come, and differentiated in the frame of the whole.

A state such as that of a softmax merges with what the turns before came to by rescaling both, and its derivative
rescales what goes back, turn by turn, with maxima that were kept for it. But a fold is the same in every admissible
frame, and behind the loop that of the total is known. In it the states of all turns are plain addends: what goes back
is the same for every turn, and nothing of a turn is kept.

Source: the backward pass of Dao et al. 2022, "FlashAttention", section 3.1, for any monoid with a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_inexact
from combinators.merging.blocks import Axes
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.folding.merges import MappedFrame, Merge, mapped_frame, merges
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.scheduling.reads import fold_axes
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Run, Schedule

RunLoop = Callable[[dict[int, Any], Here], list[Any]]
RunSums = Callable[[dict[int, Any], Here, "Frames"], list[Any]]
State = tuple[Shaped, list[Any], list[Axes]]


def has_frames(step: Region, schedule: Schedule) -> bool:
    """Whether a loop gives nothing but folds, of which one has a frame and the others are sums, and sends nothing.

    What is sent in a turn is sent once and kept; the derivative in a frame runs the turns again.
    """
    body = step.body
    if step.rotating or step.scans or len(body.outputs) != step.folded:
        return False
    kinds = [merge.kind for node, _ in step.folds for merge in _merges(schedule.graph.shaped(node))]
    return "frame" in kinds and {*kinds} <= {"frame", "sum"} and not any(_sends(inner, body) for inner in body.steps)


def run_framed(operands: dict[int, Any], here: Here, states: Sequence[State], loop: RunLoop, sums: RunSums) -> Any:
    """The totals of all turns.

    Args:
      operands: by slot of the body, padded to whole chunks.
      here: the device, outside the loop.
      states: operation, types and axes of what is folded.
      loop: the totals, from operands; how they are computed.
      sums: the same in given frames; how they are differentiated.
    """
    slots, names = tuple(operands), tuple(here.counters)

    def at(counters: Sequence[Any]) -> Here:
        return here.at(dict(zip(names, counters, strict=True)))

    @jax.custom_jvp
    def total(arrays: list[Any], counters: list[Any]) -> list[Any]:
        return loop(dict(zip(slots, arrays, strict=True)), at(counters))

    @total.defjvp
    def _(primals: tuple[list[Any], list[Any]], tangents: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        arrays, counters = primals
        found = total(arrays, counters)
        frames = Frames.of(states, found)

        def smooth(given: list[Any]) -> list[Any]:
            again = sums(dict(zip(slots, given, strict=True)), at(counters), frames)
            return [leaf for leaf in again if is_inexact(leaf.dtype)]

        moved = iter(jax.jvp(smooth, (arrays,), tangents[:1])[1])
        return found, [next(moved) if is_inexact(leaf.dtype) else _still(leaf) for leaf in found]

    return total(list(operands.values()), list(here.counters.values()))


@dataclass(frozen=True, eq=False)
class Frames:
    """The frames of some totals, in which states add up.

    Attributes:
      parts: for each part of the state that merges in one way: the merge, and where it has a frame, the frame on
        blocks and its reference point.
    """

    parts: tuple[tuple[Merge, MappedFrame | None, list[Any]], ...]

    @classmethod
    def of(cls, states: Sequence[State], totals: Sequence[Any]) -> Frames:
        """The frames of these totals."""
        parts: list[tuple[Merge, MappedFrame | None, list[Any]]] = []
        first = 0
        for shaped, like, carrier in states:
            for merge in _merges(shaped):
                moved = Merge(merge.kind, merge.monoid, merge.tree, tuple(first + leaf for leaf in merge.leaves))
                if merge.kind != "frame":
                    parts.append((moved, None, []))
                    continue
                own = [lax.stop_gradient(totals[leaf]) for leaf in moved.leaves]
                frame = mapped_frame(merge, [carrier[leaf] for leaf in merge.leaves], own)
                parts.append((moved, frame, [lax.stop_gradient(leaf) for leaf in frame.at(frame.summary(own))]))
            first += len(like)
        return cls(tuple(parts))

    def express(self, leaves: Sequence[Any]) -> list[list[Any]]:
        """The addends of a state."""
        found: list[list[Any]] = []
        for merge, frame, reference in self.parts:
            own = [leaves[leaf] for leaf in merge.leaves]
            found.append(own if frame is None else frame.express(own, reference))
        return found

    def restore(self, addends: Sequence[Sequence[Any]]) -> list[Any]:
        """The leaves of a state, from its addends."""
        leaves: dict[int, Any] = {}
        for (merge, frame, reference), own in zip(self.parts, addends, strict=True):
            whole = own if frame is None else frame.restore(reference, list(own))
            leaves.update(zip(merge.leaves, whole, strict=True))
        return [leaves[leaf] for leaf in sorted(leaves)]


def _merges(shaped: Shaped) -> tuple[Merge, ...]:
    assert shaped.operation.monoid is not None
    return merges(shaped)


def _sends(step: Any, body: Schedule) -> bool:
    """Whether a step of a turn sends, or may."""
    if isinstance(step, Convert):
        return not all(isinstance(change, Slice) for change in step.changes)
    if not isinstance(step, Run):
        return True
    shaped, cuts = body.graph.shaped(step.node), dict(step.cuts)
    over = cuts.get(shaped.operation.over or "")
    sent = fold_axes(shaped, cuts) if not step.carried else ()
    return bool(step.gathers or step.scatter or in_space(sent) or (over is not None and in_space(over.axes)))


def _still(leaf: Any) -> Any:
    # The one way to a zero of the tangent type of a varying integer.
    return jax.jvp(lambda _: leaf, (0.0,), (0.0,))[1]
