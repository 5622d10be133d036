"""Loops that end by a condition on some devices before others: what they send would wait for devices that have left.

Stages of a pipeline hold different layers, and each works on another chunk. A loop inside of a layer asks of its own
state, so that stages take different turns. What is sent in a turn is sent by all devices of a mesh, also where it goes
along other axes than the stages: a ring of rims asks every device, and those that have left the loop never answer.
"""

from __future__ import annotations

from combinators.errors import PlanError, message
from tapestry_jax.planning.prediction.collectives import placed_collectives
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Schedule


def refuse_turns_apart(schedule: Schedule) -> None:
    """Check that devices which send something in a loop until a condition take the same turns.

    Raises:
      PlanError: for a loop that sends, and whose flag is not the same on all devices.
    """
    for place, sent in placed_collectives(schedule):
        inside = schedule
        for number in place:
            step = inside.steps[number]
            if not isinstance(step, Repeat | Region):
                break
            inside = step.body
            axes = sorted(inside.slots[inside.outputs[0]].varying) if isinstance(step, Repeat) and step.until else []
            if axes:
                raise PlanError(
                    message(
                        f"`{step.path}` ends when a condition holds, in stages along {', '.join(axes)} after different "
                        "turns, and sends in them",
                        f"{sent.kind} over {', '.join(sent.axes)} for `{sent.path}`",
                        remedy="Leave what the loop reads whole on every stage, or give `tp.iterate` a number of turns "
                        'or derivative="unrolled", which always takes them all.',
                    )
                )
