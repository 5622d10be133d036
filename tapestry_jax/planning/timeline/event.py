"""Something that happens in a run: once, or in every turn of the loops around it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from combinators.frozen import dataclass

FORWARD, AGAIN, BACKWARD = "forward", "again", "backward"
"""The passes: `again` is what the backward pass computes a second time."""
COMPUTE = "compute"


@dataclass(frozen=True)
class Stages:
    """Devices that do the same one after the other, as the stages of a pipeline.

    Attributes:
      axes: the mesh axes of the pipeline.
      count: of its stages.
      chunks: how often each stage does it.
      every: seconds by which the next stage begins later.
      last_first: whether the last stage begins, as in the backward pass.
    """

    axes: tuple[str, ...]
    count: int
    chunks: int
    every: float
    last_first: bool = False

    def delay(self, stage: int) -> float:
        """Seconds by which a stage begins later than the first to begin."""
        return self.every * (self.count - 1 - stage if self.last_first else stage)


@dataclass(frozen=True)
class Event:
    """One thing that happens, in all turns of the loops around it.

    Attributes:
      path: of the operation.
      what: `compute`, or the kind of a collective.
      part: `forward`, `again` or `backward`.
      axes: the mesh axes over which is sent; empty where a device computes.
      start: seconds from the beginning of the run: of the first turn, on the stage that begins.
      seconds: of one time.
      turns: for every loop around it, the outermost first, how often and how many seconds apart.
      stages: for every pipeline around it that its devices do not do together.
      bytes: that one collective sends, per device.
    """

    path: str
    what: str
    part: str
    axes: tuple[str, ...]
    start: float
    seconds: float
    turns: tuple[tuple[int, float], ...] = ()
    stages: tuple[Stages, ...] = ()
    bytes: int = 0

    @property
    def times(self) -> int:
        """How often a device does it."""
        return math.prod(count for count, _ in self.turns)

    @property
    def busy(self) -> float:
        """Seconds that a device spends on it."""
        return self.times * self.seconds

    @property
    def waited(self) -> float:
        """Seconds in which a device waits because other stages do it."""
        turns = math.prod((each.chunks + each.count - 1) / each.chunks for each in self.stages)
        return self.busy * (turns - 1)

    @property
    def span(self) -> float:
        """Seconds from its first beginning to its last end, on one device."""
        return sum((count - 1) * every for count, every in self.turns) + self.seconds

    @property
    def end(self) -> float:
        """When it is over on all devices."""
        return self.start + self.span + sum((each.count - 1) * each.every for each in self.stages)

    def at(self, where: Mapping[str, int], sizes: Mapping[str, int]) -> float:
        """When it begins on some device.

        Args:
          where: the device's place along mesh axes; only those of pipelines are asked for.
          sizes: of the mesh axes.
        """
        late = 0.0
        for each in self.stages:
            stage = 0
            for axis in each.axes:
                stage = stage * sizes[axis] + where[axis]
            late += each.delay(stage)
        return self.start + late

    def moved(self, by: float) -> Event:
        """The same, later."""
        return replace(self, start=self.start + by)

    def unfolded(self) -> Iterator[tuple[float, float]]:
        """Beginning and end of each time, on the stage that begins. For tests and small programs."""
        for numbers in product(*(range(count) for count, _ in self.turns)):
            start = self.start + sum(number * every for number, (_, every) in zip(numbers, self.turns, strict=True))
            yield start, start + self.seconds
