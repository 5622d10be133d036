"""A simulated run, for a page: what every lane does, and when."""

from __future__ import annotations

import math
from typing import Any

from tapestry_jax.planning.timeline.event import Event
from tapestry_jax.planning.timeline.timeline import Timeline

POINTS = 2000
"""So many points of the memory over time are drawn at most."""


def times_of(timeline: Timeline) -> dict[str, Any]:
    """A timeline as a page draws it.

    Returns:
      Lanes with events `[start, seconds, path, what, turns]`, where `path` and `what` are places in `paths` and `kinds`
      and `turns` lists how often and how many seconds apart; and seconds and bytes of the memory over time.
    """
    paths, kinds = dict[str, int](), dict[str, int]()

    def told(start: float, event: Event) -> list[Any]:
        kind = event.part if not event.axes else f"{event.what} {'+'.join(event.axes)}, {event.part}"
        path = paths.setdefault(event.path, len(paths))
        found = [start, event.seconds, path, kinds.setdefault(kind, len(kinds))]
        return [*found, [list(turn) for turn in event.turns if turn[0] > 1]] if event.times > 1 else found

    lanes = [
        {
            "label": lane.label,
            "busy": lane.busy,
            "sends": any(event.axes for _, event in timeline.on(lane)),
            "events": [told(start, event) for start, event in sorted(timeline.on(lane), key=lambda pair: pair[0])],
        }
        for lane in timeline.lanes
    ]
    every = max(1, math.ceil(len(timeline.memory) / POINTS))
    return {
        "makespan": timeline.makespan,
        "hidden": timeline.hidden,
        "bubble": timeline.bubble,
        "peak": timeline.peak,
        "lanes": lanes,
        "paths": [*paths],
        "kinds": [*kinds],
        "memory": [list(point) for point in _fewer(timeline.memory, every)],
    }


def _fewer(points: tuple[tuple[float, int], ...], every: int) -> list[tuple[float, int]]:
    """The highest of every so many points: what is drawn is never below what there is."""
    return [max(points[at : at + every], key=lambda point: point[1]) for at in range(0, len(points), every)]
