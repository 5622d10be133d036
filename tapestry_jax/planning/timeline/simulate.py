"""A run of a schedule on a machine, simulated: its passes one step after the other, and what waits for what.

A device computes one thing at a time, and a collective has its links for itself. Whoever reads what is sent waits for
it; but what goes round a ring is read in the next turn, and layers gather and sum beside one another as far as their
price says so. Elsewhere links and devices do not work at the same time: compilers that hide more are faster than this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.prediction.alive import Alive, alive_by_step
from tapestry_jax.planning.pricing.priced import priced
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.planning.timeline.event import COMPUTE, Event
from tapestry_jax.planning.timeline.passes import Passes
from tapestry_jax.planning.timeline.timeline import Lane, Timeline
from tapestry_jax.planning.timeline.track import Track


def simulate(schedule: Schedule, machine: Machine, grad: bool | int | Sequence[int] = False) -> Timeline:
    """Simulate a run.

    Args:
      schedule: of a plan.
      machine: where it runs.
      grad: as in `plan.collectives`.

    Raises:
      MeshError: when the mesh does not fill the machine.
      PlanError: when a price is no number.
    """
    price = priced(schedule, machine, grad)
    passes, track = Passes(schedule, price), Track()
    alive = alive_by_step(schedule, grad)
    memory: list[tuple[float, int]] = []
    for number, step in enumerate(schedule.steps):
        start = track.end
        track.append(passes.forward(step, (number,)))
        memory += _forwards(start, track.end, alive[number])
    half = track.end
    for number, step in reversed([*enumerate(schedule.steps)] if price.cost.gradients else []):
        start = track.end
        track.append(passes.backward(step, (number,)))
        memory += _backwards(start, track.end, alive[number])
    events = tuple(sorted(track.events, key=lambda event: event.start))
    return Timeline(
        name=price.cost.name,
        machine=price.cost.machine,
        mesh=price.cost.mesh,
        axes=schedule.mesh.axes,
        lies=price.cost.lies,
        gradients=price.cost.gradients,
        makespan=track.end,
        forward=half,
        events=events,
        lanes=tuple(_lanes(events, schedule.mesh, track.end)),
        memory=tuple(_thinned(memory)),
    )


def _forwards(start: float, end: float, alive: Alive) -> Iterable[tuple[float, int]]:
    """Bytes at the beginning and the end of a step; what turns of a loop keep grows from turn to turn."""
    return (start, alive.most - alive.kept), (end, alive.most), (end, alive.after)


def _backwards(start: float, end: float, alive: Alive) -> Iterable[tuple[float, int]]:
    return (start, alive.after), (start, alive.most), (end, alive.most - alive.kept), (end, alive.before)


def _thinned(points: Sequence[tuple[float, int]]) -> Iterable[tuple[float, int]]:
    """The same line through fewer points: of those at one moment the first, the last and the highest."""
    groups: dict[float, list[int]] = {}
    for moment, size in points:
        groups.setdefault(moment, []).append(size)
    for moment, sizes in groups.items():
        told = [sizes[0], max(sizes), sizes[-1]]
        yield from ((moment, size) for place, size in enumerate(told) if place == 0 or size != told[place - 1])


def _lanes(events: Sequence[Event], mesh: MeshShape, makespan: float) -> Iterable[Lane]:
    """What computes, for every place in pipelines, and every mesh axis over which something is sent."""
    computed = [event for event in events if event.what == COMPUTE]
    found = {axis for event in computed for stages in event.stages for axis in stages.axes}
    axes = [(axis, size) for axis, size in mesh.axes if axis in found]
    busy = sum(event.busy for event in computed)
    for numbers in product(*(range(size) for _, size in axes)):
        where = tuple((axis, number) for (axis, _), number in zip(axes, numbers, strict=True))
        yield _lane(computed, COMPUTE, where, dict(mesh.axes), busy, makespan)
    for axis in mesh.names:
        sent = [event for event in events if axis in event.axes]
        if sent:
            yield _lane(sent, axis, (), dict(mesh.axes), sum(event.busy for event in sent), makespan)


def _lane(
    events: Sequence[Event],
    name: str,
    where: tuple[tuple[str, int], ...],
    sizes: Mapping[str, int],
    busy: float,
    makespan: float,
) -> Lane:
    starts = [event.at(dict(where), sizes) for event in events]
    ends = [start + event.span for start, event in zip(starts, events, strict=True)]
    return Lane(name, where, busy, max(makespan - busy, 0.0), min(starts, default=0.0), max(ends, default=0.0))
