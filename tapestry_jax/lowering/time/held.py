"""What the layers inside a loop in time gather is gathered in every turn, and not before the loop for all of them."""

from __future__ import annotations

from typing import Any

from jax import lax

from tapestry_jax.planning.scheduling.schedule import Convert, Repeat, Schedule


def held_in_turn(body: Schedule, operands: dict[int, Any], counter: Any) -> dict[int, Any]:
    """The operands of a turn; those that are stacked for loops inside depend on the turn, for JAX and XLA.

    Both move what is the same in every turn out of a loop. Of a loop over layers that is whatever depends on their
    parameters alone, above all their gathers: the parameters of all layers would lie on every device at once.

    Args:
      body: the schedule of a turn.
      operands: of the turn, by slot.
      counter: of the turn.
    """
    # One barrier for each: what goes through one barrier varies over the same mesh axes behind it.
    held = {slot: lax.optimization_barrier((operands[slot], counter))[0] for slot in _stacked(body) & operands.keys()}
    return operands | held


def _stacked(body: Schedule) -> set[int]:
    """The slots that become slices of a repetition, as they are or converted."""
    found: set[int] = set()
    for step in reversed(body.steps):
        if isinstance(step, Repeat):
            found.update(step.operands[step.carries : step.carries + len(step.axes)])
        elif isinstance(step, Convert) and step.result in found:
            found.add(step.source)
    return found
