"""About how much memory a schedule needs, without tracing its program: what methods go by before they weigh."""

from __future__ import annotations

from collections import Counter

from tapestry_jax.planning.derivatives.positions import Positions
from tapestry_jax.planning.prediction.alive import alive_at_once
from tapestry_jax.planning.pricing.keys import counts_key
from tapestry_jax.planning.pricing.marginal import block_counts
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule, Unit


def guessed(schedule: Schedule, grad: Positions) -> int:
    """Bytes of one device: values between operations that are alive at once, and the largest inside of each.

    Inside of a kernel that is written out, such as an attention, values may be larger than all between operations; the
    backward pass keeps them, but for loops whose turns are computed again.
    """
    most, kept = _inside(schedule, keeps=grad is not False)
    return alive_at_once(schedule, grad) + most + kept


def _inside(schedule: Schedule, *, keeps: bool) -> tuple[int, int]:
    """The most inside of one operation, and what all of them keep."""
    most = kept = 0
    units = {number: unit for unit in schedule.again for number in range(unit.first, unit.end)}
    again: Counter[Unit] = Counter()
    for number, step in enumerate(schedule.steps):
        if isinstance(step, Run):
            largest = _largest(schedule, step)
            most = max(most, largest)
            if number in units:
                again[units[number]] += keeps * largest
            else:
                kept += keeps * largest
        elif isinstance(step, Repeat | Region):
            inside, once = _inside(step.body, keeps=keeps)
            if isinstance(step, Repeat) and step.until:
                most = max(most, inside)  # no turn keeps anything
            elif isinstance(step, Repeat) and not step.remat:
                most, kept = max(most, inside), kept + step.length * once
            else:
                # One turn at a time is computed again, and then keeps what it makes.
                most = max(most, inside + once)
    # So is one unit at a time, which keeps the inside of all of its kernels.
    return max([most, *again.values()]), kept


def _largest(schedule: Schedule, step: Run) -> int:
    """Bytes of the largest value inside of an operation's kernel, on one device."""
    shaped = schedule.graph.shaped(step.node)
    known = "largest", step.cuts
    if known not in shaped.known:
        # Written out, as on no platform; what is cut only matters where prices say so.
        shaped.known[known] = int(block_counts(*counts_key(schedule, step, "")).largest)
    return shaped.known[known]
