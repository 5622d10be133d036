"""The result of a simulation: a value that prints as a chart, and is stored as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.timeline.event import COMPUTE, Event
from tapestry_jax.planning.timeline.text import lines


@dataclass(frozen=True)
class Lane:
    """What works at one thing at a time: a device that computes, or the links of a mesh axis.

    Attributes:
      name: `compute`, or the mesh axis.
      where: of a device in a pipeline, its place along the pipeline's mesh axes; all devices there do the same.
      busy: seconds.
      idle: seconds of the run in which it is not busy.
      first: when it begins.
      last: when it is done.
    """

    name: str
    where: tuple[tuple[str, int], ...]
    busy: float
    idle: float
    first: float
    last: float

    @property
    def label(self) -> str:
        """What tables call it."""
        places = ", ".join(f"{axis}={number}" for axis, number in self.where)
        if self.name == COMPUTE:
            return f"compute {places}" if places else "compute"
        return f"link {self.name}"


@dataclass(frozen=True)
class Timeline:
    """A run on a machine. Made by `plan.timeline`; `print` shows a chart and a table.

    Attributes:
      name: of the program.
      machine: its name.
      mesh: its shape.
      axes: the mesh axes and their sizes.
      lies: how the mesh lies on the machine.
      gradients: whether gradients are computed too.
      makespan: seconds of the run.
      forward: seconds until the first gradient is computed, but for loops that compute theirs in their own turns.
      events: by their beginnings, turns of loops folded.
      lanes: devices that compute, then mesh axes in the order of the mesh.
      memory: seconds, and the bytes of values that are alive then by the schedule, before a compiler fuses or
        reuses anything; straight lines lead from point to point. Its highest point is what `plan.explain` prints.
    """

    name: str
    machine: str
    mesh: str
    axes: tuple[tuple[str, int], ...]
    lies: str
    gradients: bool
    makespan: float
    forward: float
    events: tuple[Event, ...]
    lanes: tuple[Lane, ...]
    memory: tuple[tuple[float, int], ...]

    @property
    def compute(self) -> float:
        """Seconds in which a device computes."""
        return sum(event.busy for event in self.events if event.what == COMPUTE)

    @property
    def communication(self) -> float:
        """Seconds of all transfers; one over two mesh axes counts once."""
        return sum(event.busy for event in self.events if event.what != COMPUTE)

    @property
    def bubble(self) -> float:
        """Seconds in which a stage of a pipeline waits while others compute."""
        return sum(event.waited for event in self.events)

    @property
    def hidden(self) -> float:
        """Seconds of transfers that pass beside something else."""
        found = self.compute + self.bubble + self.communication - self.makespan
        # What is left of rounding is nothing hidden.
        return found if found > 1e-9 * self.makespan else 0.0

    @property
    def idle(self) -> dict[str, float]:
        """Seconds in which a lane does nothing, by its label."""
        return {lane.label: lane.idle for lane in self.lanes}

    @property
    def peak(self) -> int:
        """The most bytes of values that are alive at once."""
        return max((size for _, size in self.memory), default=0)

    def on(self, lane: Lane) -> Iterator[tuple[float, Event]]:
        """What a lane does, and when each begins there."""
        sizes = dict(self.axes)
        for event in self.events:
            if (lane.name in event.axes) if event.axes else lane.name == COMPUTE:
                yield event.at(dict(lane.where), sizes), event

    def to_json(self) -> str:
        """The timeline as text, totals included."""
        totals: dict[str, Any] = {
            "compute": self.compute,
            "communication": self.communication,
            "hidden": self.hidden,
            "bubble": self.bubble,
            "idle": self.idle,
        }
        return json.dumps({"timeline": 1, **totals, **dataclasses.asdict(self)}, indent=1)

    def __str__(self) -> str:
        return "\n".join(lines(self))
