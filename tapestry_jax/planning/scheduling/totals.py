"""Totals of scans in loops in time: carried from turn to turn, passed through loops inside, begun by other devices.

A loop over the scanned dimension carries the total of the turns before. A loop inside it, over another dimension of the
total, takes its piece of the total and gives one back. Where the scanned dimension lies on mesh axes as well, a device
has to know what the devices before it come to before its first turn: a pass over all turns finds the totals, an
exchange what lies before each, and the loop itself begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.opening import stacked
from tapestry_jax.planning.scheduling.frame import Frame
from tapestry_jax.planning.scheduling.schedule import Region, Schedule

Total = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A scan: its node, and the slots of the leaves of its total before and after a turn."""

Exchange = Callable[[int, tuple[int, ...]], tuple[int, ...]]


@dataclass(frozen=True)
class Wiring:
    """What the passes over a loop have in common with the loop.

    Attributes:
      axis: the loop.
      frame: around it.
      inner: its body.
      reverse: whether the last chunk comes first.
      path: of the loop.
    """

    axis: str
    frame: Frame
    inner: Frame
    reverse: bool
    path: str


def passed_through(totals: Sequence[Total], axis: str, inner: Frame, frame: Frame, path: str) -> list[tuple[int, int]]:
    """Let the loop `axis` take pieces of totals that a loop around it carries.

    Returns:
      Slots around and inside the loop of the totals after it, whose pieces it gives back.
    """
    given_back: list[tuple[int, int]] = []
    for node, before, after in totals:
        sides: list[tuple[int, ...]] = []
        for slots in (before, after):
            known = [inner.slots[slot] for slot in slots]
            sides.append(tuple(frame.add(replace(slot, layout=stacked(slot.layout, axis))) for slot in known))
        frame.totals[node] = sides[0], sides[1]
        for outer, slot in zip(sides[0], before, strict=True):
            inner.take_piece(outer, slot, path)
        given_back += zip(sides[1], after, strict=True)
    return given_back


def first_passes(wiring: Wiring, totals: Sequence[Total], exchange: Exchange) -> tuple[int, ...]:
    """Find what comes before the first turn of scans over the mesh and in time, one scan after the other.

    Args:
      wiring: of the loop.
      totals: of the scans over the mesh, in the order of the program: one may read what another makes.
      exchange: adds the exchange of a scan, given its node and the slots of its totals; returns those of what comes
        before.

    Returns:
      The slots of what comes before, to be further operands of the loop.
    """
    frame, inner = wiring.frame, wiring.inner
    starts: tuple[int, ...] = ()
    for number, (node, before, _) in enumerate(totals):
        known = totals[: number + 1]
        given = (*inner.inputs, *(slot for _, slots, _ in known for slot in slots))
        made = tuple(slot for _, _, slots in known for slot in slots)
        results = tuple(frame.add(inner.slots[slot]) for slot in made)
        scans = tuple((each, len(slots)) for each, slots, _ in known)
        operands = (*inner.operands, *starts)
        body = needed(inner.schedule(given, made))
        rotating = tuple(inner.rotating)
        frame.steps.append(
            Region(wiring.axis, operands, results, body, rotating, (), scans, wiring.reverse, wiring.path, ends=True)
        )
        starts += exchange(node, results[len(made) - len(before) :])
    return starts


def needed(schedule: Schedule) -> Schedule:
    """The schedule without the steps that its outputs do not need, and loops inside without what nobody needs of them.

    What lies in a loop may need what is found only later: the total of a scan that reads another one.
    """
    used, steps = set(schedule.outputs), []
    for step in reversed(schedule.steps):
        if used.intersection(step.results):
            kept = _needed_of(step, used) if isinstance(step, Region) and not (step.stages or step.ends) else step
            used.update(kept.operands)
            steps.append(kept)
    return replace(schedule, steps=tuple(reversed(steps)))


def _needed_of(loop: Region, used: Container[int]) -> Region:
    """The loop without results that nobody uses, without scans that only those need, and without their operands."""
    body = loop.body
    folded, scanned = loop.folded, loop.scanned
    folds: list[tuple[int, int]] = []
    results: list[int] = []
    added: list[int] = []
    start = 0
    for node, leaves in loop.folds:
        place = slice(start, start := start + leaves)
        if any(slot in used for slot in loop.results[place]):
            folds.append((node, leaves))
            results += loop.results[place]
            added += body.outputs[place]
    made: list[int] = []
    for result, output in zip(loop.results[folded:], body.outputs[folded + scanned :], strict=True):
        if result in used:
            results.append(result)
            made.append(output)
    # The inputs of the body are one for each operand, then the totals of scans, which go on from turn to turn.
    entering = len(body.inputs) - scanned
    totals = _leaves_of(loop)
    chosen: list[int] = []
    while True:
        after = [slot for number in chosen for slot in body.outputs[folded:][totals[number]]]
        inside = needed(replace(body, outputs=(*added, *after, *made)))
        read = {*inside.outputs, *(slot for step in inside.steps for slot in step.operands)}
        more = [number for number, place in enumerate(totals) if read.intersection(body.inputs[entering:][place])]
        if more == chosen:
            break
        chosen = more
    kept = [place for place in range(entering) if body.inputs[place] in read]
    before = [slot for number in chosen for slot in body.inputs[entering:][totals[number]]]
    begun = [slot for number in chosen for slot in loop.operands[entering:][totals[number]]]
    return replace(
        loop,
        operands=(*(loop.operands[place] for place in kept), *begun),
        results=tuple(results),
        body=replace(inside, inputs=(*(body.inputs[place] for place in kept), *before)),
        rotating=tuple(kept.index(place) for place in loop.rotating if place in kept),
        folds=tuple(folds),
        scans=tuple(loop.scans[number] for number in chosen),
    )


def _leaves_of(loop: Region) -> list[slice]:
    """For every scan of a loop the places of its totals among those of all scans."""
    found: list[slice] = []
    start = 0
    for _, leaves in loop.scans:
        found.append(slice(start, start := start + leaves))
    return found
