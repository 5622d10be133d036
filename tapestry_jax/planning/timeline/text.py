"""A timeline as text: a bar for every lane, then what takes longest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tapestry_jax.planning.pricing.cost import duration
from tapestry_jax.planning.timeline.event import COMPUTE

if TYPE_CHECKING:
    from tapestry_jax.planning.timeline.timeline import Lane, Timeline

_WIDTH, _LANES, _ROWS = 64, 16, 24
_SHADES = " .:#"
"""A column of a bar: idle, busy up to a third, up to two, more."""


def lines(timeline: Timeline) -> Iterator[str]:
    """The chart and the table."""
    yield f"{timeline.name} on {timeline.machine}, {timeline.mesh}{', with gradients' * timeline.gradients}"
    yield f"  {timeline.lies}"
    told = f"one run: {duration(timeline.makespan)}"
    if timeline.gradients:
        told += f", of which {duration(timeline.forward)} before the backward pass"
    yield told
    yield (
        f"  a device computes {duration(timeline.compute)}; transfers {duration(timeline.communication)}, of which "
        f"{duration(timeline.hidden)} beside it"
    )
    if timeline.bubble:
        yield f"  stages of pipelines wait {duration(timeline.bubble)}"
    shown = _shown(timeline)
    width = max((len(lane.label) for lane in shown), default=0)
    for lane in shown:
        share = lane.busy / timeline.makespan if timeline.makespan else 0.0
        yield f"{lane.label:<{width}} |{_bar(timeline, lane)}| busy {share:.0%}, idle {duration(lane.idle)}"
    if len(shown) < len(timeline.lanes):
        yield f"  and {len(timeline.lanes) - len(shown)} lanes more"
    yield f"values alive, by the schedule: at most {timeline.peak:,} B"
    yield from _table(timeline)


def _shown(timeline: Timeline) -> list[Lane]:
    """All lanes; of very many stages the first and the last ones."""
    computing = [lane for lane in timeline.lanes if lane.name == COMPUTE]
    links = [lane for lane in timeline.lanes if lane.name != COMPUTE]
    half = _LANES // 2
    return [*(computing if len(computing) <= _LANES else computing[:half] + computing[-half:]), *links]


def _bar(timeline: Timeline, lane: Lane) -> str:
    """Columns of equal time, by how busy they are; what happens in turns counts as spread over them."""
    column = timeline.makespan / _WIDTH
    busy = [0.0] * _WIDTH
    for start, event in timeline.on(lane) if column else ():
        span = event.span
        first, last = start / column, (start + span) / column
        for number in range(int(first), min(int(last) + 1, _WIDTH)):
            busy[number] += event.busy / span * max(min(last, number + 1) - max(first, number), 0.0)
    return "".join(_SHADES[min(3, int(share * 3 + 0.999)) if share > 1e-3 else 0] for share in busy)


def _table(timeline: Timeline) -> Iterator[str]:
    rows = sorted(timeline.events, key=lambda event: -event.busy)[:_ROWS]
    yield f"{'start':>10}  {'seconds':>10}  {'times':>7}  {'together':>10}  what"
    for event in sorted(rows, key=lambda event: event.start):
        where = f"{event.what} over {'+'.join(event.axes)}" if event.axes else event.what
        remark = "" if event.part == "forward" else f" ({event.part})"
        yield (
            f"{duration(event.start):>10}  {duration(event.seconds):>10}  {event.times:>7,}  "
            f"{duration(event.busy):>10}  {where}, {event.path}{remark}"
        )
    if len(rows) < len(timeline.events):
        rest = sum(event.busy for event in timeline.events) - sum(event.busy for event in rows)
        yield f"  and {len(timeline.events) - len(rows)} more, {duration(rest)}"
