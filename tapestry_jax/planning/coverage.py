"""Proof that a schedule computes every cell of every index space exactly once."""

from __future__ import annotations

import itertools

from combinators.box import Box
from combinators.cover import exact_cover
from combinators.errors import PlanError, message
from tapestry_jax.planning.schedule import Region, Repeat, Run, Schedule


def verify_coverage(schedule: Schedule) -> None:
    """Check that the boxes of all devices cover the index box of every operation, without overlap or gap.

    Raises:
      PlanError: with the operation and the box that is missing or covered twice.
    """
    for step in schedule.steps:
        match step:
            case Run():
                _verify(schedule, step)
            case Repeat() | Region():
                verify_coverage(step.body)
            case _:
                pass


def _verify(schedule: Schedule, step: Run) -> None:
    sizes = schedule.graph.shaped(step.node).sizes
    cuts = dict(step.cuts)
    whole = Box.of_shape(tuple(sizes[dim] for dim in cuts))
    if not cuts or whole.is_empty:
        return
    ranges = [
        [
            (min(device * cut.block, sizes[dim]), min((device + 1) * cut.block, sizes[dim]))
            for device in range(schedule.mesh.size(cut.axes))
        ]
        for dim, cut in cuts.items()
    ]
    boxes = [Box(tuple(r[0] for r in pieces), tuple(r[1] for r in pieces)) for pieces in itertools.product(*ranges)]
    report = exact_cover(whole, [box for box in boxes if not box.is_empty])
    if not report.is_exact:
        raise PlanError(
            message(
                f"the pieces of `{step.path}` do not cover its index space exactly",
                f"dimensions {', '.join(cuts)}",
                str(report),
                remedy="Plan again: this schedule was damaged.",
            )
        )
