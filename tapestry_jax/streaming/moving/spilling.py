"""Values between passes: made when the pass that writes them begins, and gone when no pass reads them any more.

A repetition over what is stored makes one in every pass, of which two are there at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from combinators.frozen import dataclass
from tapestry_jax.storage.protocols import Sink
from tapestry_jax.streaming.parts import Pass, Split


@dataclass(frozen=True, eq=False)
class Spill:
    """Where values between passes go.

    Attributes:
      make: from a slot and whether it was begun before to its sinks.
      remove: of a slot, what lies there; its sinks and what they gave are closed.
    """

    make: Callable[[int, bool], Sequence[Sink]]
    remove: Callable[[int], None]


def ends(split: Split) -> Mapping[int, int]:
    """Of every value between passes the last part that reads it, by slot; of one that nobody reads who makes it."""
    if "ends" not in split.known:
        parts = ((number, part) for number, part in enumerate(split.parts) if isinstance(part, Pass))
        makers = {each.value: number for number, part in parts for each in part.made}
        split.known["ends"] = {slot: max(split.last_use.get(slot, -1), makers[slot]) for slot in split.kept}
    return split.known["ends"]


def most_at_once(lives: Iterable[tuple[int, int, int]]) -> int:
    """The most bytes that are there in a part, from the first part, the last one and the bytes of each value."""
    change = dict[int, int]()
    for first, last, size in lives:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    most = now = 0
    for number in sorted(change):
        now += change[number]
        most = max(most, now)
    return most
