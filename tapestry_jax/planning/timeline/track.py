"""Events one after the other, and the turns of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tapestry_jax.planning.timeline.event import COMPUTE, Event, Stages


class Track:
    """Events of a part of the schedule, from its own beginning on.

    Attributes:
      events: with their beginnings.
      end: seconds from the beginning to the end of all of them.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.end = 0.0

    def add(self, event: Event) -> None:
        """One more event, when all before it is over."""
        if event.seconds:
            self.events.append(event.moved(self.end))
            self.end += event.seconds

    def append(self, other: Track) -> None:
        """Another part, likewise."""
        self.events += [event.moved(self.end) for event in other.events]
        self.end += other.end


def in_turns(turn: Track, turns: int, rotating: Sequence[Event] = ()) -> Track:
    """A loop whose turns follow one another.

    What goes round a ring passes while a turn is computed: from its beginning on, whenever its link is free, so
    that what the turn itself sends is never late. The next turn begins when both are over; after the last one nothing
    goes round.
    """
    found = Track()
    sent, over = _beside(turn, rotating) if turns > 1 else ([], 0.0)
    every = max(turn.end, over)
    found.events = [replace(event, turns=((turns, every), *event.turns)) for event in turn.events]
    found.events += [replace(event, turns=((turns - 1, every), *event.turns)) for event in sent]
    found.end = (turns - 1) * every + turn.end
    return found


def in_stages(turn: Track, turns: int, axes: tuple[str, ...], count: int, *, last_first: bool) -> Track:
    """A pipeline: in each turn every stage works on its chunk, but for the first and the last turns, when some wait.

    What is sent in a turn is sent by all devices.
    """
    found = Track()
    chunks = turns - count + 1
    stages = Stages(axes, count, chunks, turn.end, last_first)
    for event in turn.events:
        if event.what == COMPUTE:
            worked = replace(event, turns=((chunks, turn.end), *event.turns), stages=(stages, *event.stages))
            found.events.append(worked)
        else:
            found.events.append(replace(event, turns=((turns, turn.end), *event.turns)))
    found.end = turns * turn.end
    return found


def _beside(turn: Track, rotating: Iterable[Event]) -> tuple[list[Event], float]:
    """What goes round, in the time in which its link is free; and when all of it has arrived."""
    sent: list[Event] = []
    over = 0.0
    for event in rotating:
        busy = sorted((each.start, each.end) for each in (*turn.events, *sent) if not event.axes or _meet(each, event))
        at, left = 0.0, event.seconds
        for start, end in busy:
            if left > 0 and start > at:
                part = min(left, start - at)
                sent.append(replace(event, start=at, seconds=part))
                left -= part
            at = max(at, end)
        if left > 0:
            sent.append(replace(event, start=at, seconds=left))
        over = max([over, *(each.end for each in sent)])
    return sent, over


def _meet(one: Event, other: Event) -> bool:
    return not set(one.axes).isdisjoint(other.axes)
