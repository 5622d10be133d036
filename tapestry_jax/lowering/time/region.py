"""Loops in time: one scan over the chunks of a dimension, its step recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.equations.scanned import scan
from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import crop_axis, pad_axis
from tapestry_jax.lowering.on_device.recomputed import recomputed
from tapestry_jax.lowering.on_device.stripes import in_order
from tapestry_jax.lowering.on_device.taken import take_cells
from tapestry_jax.lowering.on_device.varying import came_round
from tapestry_jax.lowering.time.carried import Carried, identity, varying_as
from tapestry_jax.lowering.time.framed import Frames, has_frames, run_framed
from tapestry_jax.lowering.time.scan import for_later_devices
from tapestry_jax.lowering.time.still import before_loop
from tapestry_jax.lowering.time.summed import ends_in_sum, run_summed
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.geometry.time_axis import ring_of, turns_of
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Schedule, Slot

RunBody = Callable[[Schedule, dict[int, Any], Here], list[Any]]
_FEW = 8
"""Steps of a turn that is looked through for what stands still; it is traced once more for it."""


def run_region(step: Region, schedule: Schedule, here: Here, arrays: Sequence[Any], run_body: RunBody) -> list[Any]:
    """Run all turns; returns the states' leaves, then the values whose chunks were put together; or last totals."""
    entering = len(step.body.inputs) - step.scanned
    fixed, starts = padded_operands(step, arrays[:entering]), arrays[entering:]
    if ends_in_sum(step, schedule):
        # Few programs have such loops.
        from tapestry_jax.lowering.time.presented import presented

        return run_summed(
            step,
            here,
            fixed,
            presented(step, schedule),
            run_body,
            lambda given, at: _run(step, schedule, at, given, (), run_body),
        )
    if has_frames(step, schedule):
        return run_framed(
            fixed,
            here,
            Carried.of(step, schedule).folds,
            lambda given, at: _run(step, schedule, at, given, (), run_body),
            lambda given, at, frames: _sums(step, schedule, at, given, frames, run_body),
        )
    return _run(step, schedule, here, fixed, starts, run_body)


def _sums(
    step: Region, schedule: Schedule, here: Here, fixed: dict[int, Any], frames: Frames, run_body: RunBody
) -> list[Any]:
    """The totals of all turns, each of whose states is expressed in given frames and added up."""
    carried = Carried.of(step, schedule)

    def chunk(constant: dict[int, Any], counter: Any) -> list[list[Any]]:
        outputs = run_body(step.body, dict(constant), here.turning(step.axis, counter))
        return frames.express(varying_as(outputs, carried.slots))

    counters = jnp.arange(turns_of(step.axis), dtype=jnp.int32)
    still, one = _standing_still(step, chunk, fixed, counters[0])
    again = recomputed(one)

    def turn(sums: list[list[Any]], counter: Any) -> tuple[list[list[Any]], None]:
        return jax.tree.map(jnp.add, sums, again(still, counter)), None

    unit = frames.express(varying_as(identity(carried.folds), carried.slots))
    return frames.restore(scan(turn, unit, counters)[0])


def _standing_still(step: Region, chunk: Any, fixed: dict[int, Any], *turning: Any) -> tuple[Any, Any]:
    """What stands still in a turn, computed before the loop where that is found quickly, and the turn without it."""
    if len(step.body.steps) <= _FEW and not any(isinstance(inner, Region | Repeat) for inner in step.body.steps):
        return before_loop(chunk, fixed, *turning)
    return fixed, chunk


def _run(
    step: Region, schedule: Schedule, here: Here, fixed: dict[int, Any], starts: Sequence[Any], run_body: RunBody
) -> list[Any]:
    """All turns, from operands by slot of the body and the first totals of scans."""
    body, turns, carried = step.body, turns_of(step.axis), Carried.of(step, schedule)
    count = len(carried.slots)
    around = [fixed[body.inputs[position]] for position in step.rotating]
    moved = {body.inputs[position] for position in step.rotating}
    fixed = {slot: array for slot, array in fixed.items() if slot not in moved}
    if step.ends:
        here = here.ending(step.axis, step.scans[-1][0])
        fixed, starts = for_later_devices(step, schedule, here, (fixed, starts))

    def chunk(constant: dict[int, Any], moving: list[Any], counter: Any, state: list[Any]) -> Any:
        values = constant | {body.inputs[i]: array for i, array in zip(step.rotating, moving, strict=True)}
        values |= carried.entering(state)
        outputs = run_body(body, values, carried.turning(here, counter))
        return carried.after(state, outputs, here, counter), outputs[count:]

    start = carried.first(starts)
    counters = jnp.arange(turns, dtype=jnp.int32)
    still, one = _standing_still(step, chunk, fixed, around, counters[0], start)
    again = recomputed(one)

    def turn(carry: tuple[list[Any], list[Any]], counter: Any) -> tuple[tuple[list[Any], list[Any]], list[Any]]:
        state, moving = carry
        state, made = again(still, moving, counter, state)
        return (state, _sent_on(step, moving, here)), made

    looped = counters[:-1] if step.rotating else counters
    (states, moving), pieces = scan(turn, (start, around), looped, reverse=step.reverse)
    if step.rotating:
        # Behind the last turn nothing is sent on: it stands behind the loop.
        apart = recomputed(one, in_loop=False)
        states, last = apart(still, moving, counters[-1], states)
        pieces = jax.tree.map(lambda array, piece: jnp.concatenate([array, piece[None]]), pieces, last)
    if step.ends:
        return states
    made = [body.slots[slot] for slot in body.outputs[count:]]
    # Extrema that a loop inside has carried come with their counts.
    pairs = zip(pieces, made, strict=True)
    whole = [jax.tree.map(lambda part, slot=slot: together(part, slot, step.axis, here), leaf) for leaf, slot in pairs]
    return [*states[: carried.folded], *whole]


def padded_operands(step: Region, arrays: Sequence[Any]) -> dict[int, Any]:
    """The operands by slot; those that are sliced are padded to whole chunks once, and not in every turn."""
    values = dict(zip(step.body.inputs, arrays, strict=False))
    for inner in step.body.steps:
        if isinstance(inner, Convert) and inner.source in values:
            for change in inner.changes:
                if isinstance(change, Slice) and change.cut.axes == (step.axis,) and not change.cut.striped:
                    extent = change.cut.block * (turns_of(step.axis) - 1) + change.cut.extent
                    values[inner.source] = pad_axis(values[inner.source], change.axis, extent)
    return values


def _sent_on(step: Region, moving: list[Any], here: Here) -> list[Any]:
    """What goes round a ring, one device further on."""
    ring = ring_of(step.axis)
    if ring is None:
        return moving
    devices = here.size((ring,))
    pairs = [(device, (device + 1) % devices) for device in range(devices)]
    return [permute_over(array, (ring,), pairs, here, came_round) for array in moving]


def together(pieces: Any, slot: Slot, loop: str, here: Here) -> Any:
    """The chunks of all turns as one array."""
    turns, ring = turns_of(loop), ring_of(loop)
    at = next((i for i, cut in enumerate(slot.layout.cuts) if cut is not None and loop in cut.axes), None)
    if at is None:
        # A leaf of a state without the loop's dimension: every turn makes the same.
        return pieces[0]
    if ring is not None:
        # Turn t made the piece of the device t places behind.
        order = (lax.axis_index(ring) - jnp.arange(turns, dtype=jnp.int32)) % turns
        pieces = take_cells(pieces, order, 0)
    cut = slot.layout.cuts[at]
    assert cut is not None
    shape = list(pieces.shape[1:])
    shape[at] *= turns
    whole = jnp.moveaxis(pieces, 0, at).reshape(shape)
    if cut.axes != (loop,):
        return whole
    size = slot.type.shape[at]
    whole = crop_axis(whole, at, size)
    return in_order(whole, at, cut, size) if cut.striped else whole
