"""Where a schedule places things: the dimensions of every operation, and the layouts of arguments and results."""

from __future__ import annotations

from collections.abc import Iterator

from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import label
from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule

Where = dict[tuple[str, str], str]
"""Path and dimension, and where it goes; empty text where it is whole."""


def placed(schedule: Schedule) -> Where:
    """Where the dimensions of every operation go; of steps with one path, such as turns of a halo, all ways."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for inner, step in _runs(schedule):
        cuts = dict(step.cuts)
        names: dict[str, str] = dict(getattr(inner.graph.nodes[step.node], "names", ()))
        for dim, name in names.items():
            told = said(cuts[dim]) if dim in cuts else ""
            found.setdefault((step.path, name), {})[told] = None
    return {key: " or ".join(ways) for key, ways in found.items()}


def stored(schedule: Schedule) -> Where:
    """The layouts of arguments and results, by `argument` or `result` and name."""
    found: Where = {}
    for node, slot in zip(schedule.graph.inputs, schedule.inputs, strict=True):
        found["argument", node.name] = _layout(schedule, slot)
    for (name, _), slot in zip(schedule.graph.outputs, schedule.outputs, strict=True):
        found["result", name] = _layout(schedule, slot)
    return found


def _layout(schedule: Schedule, slot: int) -> str:
    value = schedule.slots[slot]
    return value.layout.describe(value.type.names)


def said(cut: Cut) -> str:
    """Mesh axes and loops, and how many indices a device computes redundantly before and behind its block."""
    extra = "" if cut.window is None else f"(-{cut.window.before} +{cut.window.after})"
    return f"{'striped ' * cut.striped}{'+'.join(map(label, cut.axes))}{extra}"


def _runs(schedule: Schedule) -> Iterator[tuple[Schedule, Run]]:
    for step in schedule.steps:
        match step:
            case Run():
                if not is_barrier(schedule.graph.nodes[step.node]):
                    yield schedule, step
            case Repeat() | Region():
                yield from _runs(step.body)
            case _:
                pass
