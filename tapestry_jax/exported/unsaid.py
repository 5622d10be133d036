"""What a plan does and no `PartitionSpec` says: it says over which mesh axes an array is cut, and no more."""

from __future__ import annotations

from collections.abc import Iterator

from tapestry_jax.exported.specs import Unsaid
from tapestry_jax.planning.geometry.time_axis import dim_of, label, ring_of
from tapestry_jax.planning.rewrites.carriers import Accumulate
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule
from tapestry_jax.report.steps import turns_text


def unsaid(schedule: Schedule, accumulate: Accumulate) -> tuple[Unsaid, ...]:
    """List it, each once, in the order of the schedule.

    Args:
      schedule: of a plan.
      accumulate: dtypes in which its folds are carried, by scope.
    """
    found = [*_padded(schedule), *_steps(schedule)]
    found += [
        Unsaid("accumulate", scope or schedule.graph.name, "folds are carried in the dtype asked for")
        for scope, dtype in accumulate
        if dtype is not None
    ]
    return tuple(dict.fromkeys(found))


def _padded(schedule: Schedule) -> Iterator[Unsaid]:
    graph = schedule.graph
    stored = [(node.name, slot) for node, slot in zip(graph.inputs, schedule.inputs, strict=True)]
    stored += [(name, slot) for (name, _), slot in zip(graph.outputs, schedule.outputs, strict=True)]
    for name, number in stored:
        slot = schedule.slots[number]
        shape = slot.layout.padded_shape(slot.type.shape, schedule.mesh)
        if shape != slot.type.shape:
            yield Unsaid("padding", name, f"stored in padded pieces, as {shape}; the spec says what divides")


def _steps(schedule: Schedule) -> Iterator[Unsaid]:
    for step in schedule.steps:
        match step:
            case Region():
                yield _region(schedule, step)
                yield from _steps(step.body)
            case Repeat():
                if step.stage is not None:
                    over = "+".join(step.stage.axes)
                    yield Unsaid("stages", step.path, f"{step.layers} turns are divided among the devices of {over}")
                if step.remat:
                    yield Unsaid("remat", step.path, "each turn is computed again in the backward pass")
                yield from _steps(step.body)
            case Run():
                yield from _run(schedule, step)
            case _:
                pass


def _region(schedule: Schedule, step: Region) -> Unsaid:
    turns, dim = turns_text(schedule, step), dim_of(step.axis)
    if step.stages:
        return Unsaid("stages", step.path, f"`{dim}` flows through the stages of {'+'.join(step.stages)}: {turns}")
    if ring_of(step.axis) is not None:
        return Unsaid("ring", step.path, f"`{dim}` goes round the devices of {ring_of(step.axis)}: {turns}")
    return Unsaid("chunks", step.path, f"`{dim}` in {label(step.axis)}: {turns}")


def _run(schedule: Schedule, step: Run) -> Iterator[Unsaid]:
    names: dict[str, str] = dict(getattr(schedule.graph.nodes[step.node], "names", ()))
    for dim, cut in step.cuts:
        name = names.get(dim, dim)
        if cut.striped:
            yield Unsaid("stripes", step.path, f"`{name}` is dealt to the devices in turn")
        if cut.window is not None and (cut.window.before or cut.window.after):
            more = cut.window.before + cut.window.after
            yield Unsaid(
                "halo", step.path, f"`{name}` is computed {more} indices beyond each block, to exchange less often"
            )
