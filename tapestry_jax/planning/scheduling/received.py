"""Which steps give what other devices sent: what is computed again does not send it again."""

from __future__ import annotations

from tapestry_jax.planning.geometry.changes import Deal, Exchange, Gather, Share
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.scheduling.reads import fold_axes
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Run, Schedule, Step


def is_received(schedule: Schedule, step: Step) -> bool:
    """Whether the results of a step are what other devices sent, as far as they are not computed from it at once."""
    match step:
        case Convert():
            return not step.again and any(isinstance(c, Gather | Exchange | Deal | Share) for c in step.changes)
        case Run():
            shaped, cuts = schedule.graph.shaped(step.node), dict(step.cuts)
            return not step.carried and bool(in_space(fold_axes(shaped, cuts)))
        case Finish():
            # Of loops in time alone nothing was sent.
            shaped, cuts = schedule.graph.shaped(step.node), dict(step.cuts)
            over = shaped.operation.over
            return bool(in_space(fold_axes(shaped, cuts) if over is None else cuts[over].axes))
        case _:
            return False


def is_kept(schedule: Schedule, step: Step) -> bool:
    """Whether a turn that is computed again finds the results of a step, received or kept by the plan."""
    return is_received(schedule, step) or (isinstance(step, Run) and step.kept)
