"""What is known of a kernel so far."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import field
from typing import final

from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from tapestry_jax.inference.probe import Place, Probe
from tapestry_jax.inference.relation import Relation


@final
@dataclass(frozen=True)
class Dimension:
    """A dimension that results carry.

    Attributes:
      ends: the axes of results that carry it, at most one of each result.
      readers: the axes of operands that it follows, at most one of each operand.
    """

    ends: frozenset[Place]
    readers: dict[Place, Relation]


@final
@dataclass
class Findings:
    """What is known of a kernel so far; every search adds to it.

    Attributes:
      probe: the kernel.
      dimensions: those that results carry, whose pieces are pieces of the whole.
      folds: axes that are folded together, for each dimension that is.
      monoid: what merges the folds, or the steps of a scan.
      over: the axis that is scanned.
      reverse: whether the scan begins at the end.
      unread: axes to which nothing answers.
      why: for axes that stay whole, why they do.
      notes: what else could not be told.
    """

    probe: Probe
    dimensions: list[Dimension] = field(default_factory=list[Dimension])
    folds: list[tuple[Place, ...]] = field(default_factory=list[tuple[Place, ...]])
    monoid: Monoid | None = None
    over: Place | None = None
    reverse: bool = False
    unread: set[Place] = field(default_factory=set[Place])
    why: dict[Place, str] = field(default_factory=dict[Place, str])
    notes: list[str] = field(default_factory=list[str])

    def places(self) -> Iterator[Place]:
        """All axes of all operands."""
        for operand, kind in enumerate(self.probe.types):
            yield from ((operand, axis) for axis in range(kind.ndim))

    def whole(self) -> list[Place]:
        """The axes of operands that are neither carried nor folded nor scanned."""
        known = {place for found in self.dimensions for place in found.readers}
        known |= {place for group in self.folds for place in group} | {self.over}
        return [place for place in self.places() if place not in known]

    def size(self, place: Place) -> int:
        """The cells of an axis of an operand."""
        return self.probe.types[place[0]].shape[place[1]]

    def groups(self, place: Place) -> Iterator[tuple[Place, ...]]:
        """A whole axis alone, and with whole axes of the same size of other operands, fewest first."""
        size, whole = self.size(place), self.whole()
        if place not in whole:
            return
        yield (place,)
        free = [p for p in whole if p[0] != place[0] and self.size(p) == size]
        for count in range(1, len(self.probe.types)):
            for others in itertools.combinations(free, count):
                if len({p[0] for p in others}) == count:
                    yield (place, *others)

    def untold(self) -> tuple[str, ...]:
        """All that could not be told, a sentence each."""
        reasons = [self.why[place] for place in self.whole() if place in self.why]
        return tuple(dict.fromkeys([*reasons, *self.notes]))
