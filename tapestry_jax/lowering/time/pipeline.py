"""Pipelines: a loop in time in which every device along an axis holds a stage, one chunk behind the stage before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.equations.scanned import scan
from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.exchange.convert import convert
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.recomputed import recomputed
from tapestry_jax.lowering.on_device.varying import vary
from tapestry_jax.lowering.time.region import padded_operands, together
from tapestry_jax.planning.folding.sent import next_device
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.geometry.opening import turn_cut
from tapestry_jax.planning.geometry.time_axis import turns_of
from tapestry_jax.planning.scheduling.schedule import Region, Schedule, Slot

RunBody = Callable[[Schedule, dict[int, Any], Here], list[Any]]


def run_pipeline(step: Region, here: Here, arrays: Sequence[Any], run_body: RunBody) -> list[Any]:
    """Run all turns; returns the results, whose chunks were put together again, as each stage made them."""
    body, chunks = step.body, turns_of(step.axis)
    fixed = padded_operands(step, arrays)
    entering = [fixed.pop(body.inputs[place]) for place in step.handed]
    received = [body.inputs[place] for place in step.handed]
    device = here.index(step.stages)

    def at(counter: Any) -> Here:
        # Before its first and behind its last chunk a device computes on cells that are real but not asked for.
        number = jnp.clip(counter - device, 0, chunks - 1)
        return here.turning(step.axis, number).asking((number == counter - device).astype(jnp.int32))

    def taken(moving: list[Any], own: list[Any], counter: Any) -> list[Any]:
        """What a stage works on: a chunk of the program's, on the first device, or what it was handed."""
        enters, inside = (device == 0) | (counter < device), at(counter)
        return [
            jnp.where(enters, _chunk(body, slot, step.axis, array, inside), handed)
            for slot, handed, array in zip(received, moving, own, strict=True)
        ]

    def chunk(operands: tuple[list[Any], dict[int, Any], Any]) -> tuple[list[Any], list[Any]]:
        chosen, constant, counter = operands
        outputs = run_body(body, {**constant, **dict(zip(received, chosen, strict=True))}, at(counter))
        return outputs[: len(chosen)], outputs[len(chosen) :]

    again = recomputed(chunk)
    pairs = next_device(here.size(step.stages))

    def turn(moving: list[Any], counter: Any) -> tuple[list[Any], list[Any]]:
        # Chosen outside of what is computed again: one array is kept for the backward pass either way.
        handed, made = again((taken(moving, entering, counter), fixed, counter))
        return [permute_over(array, step.stages, pairs, here) for array in handed], made

    start = [
        vary(jnp.zeros(s.local_shape, s.type.dtype), sorted(s.varying)) for s in map(body.slots.__getitem__, received)
    ]
    _, pieces = scan(turn, start, jnp.arange(step.turns(here), dtype=jnp.int32))
    slots = [body.slots[slot] for slot in step.results_inside]
    return [
        together(_chunks(array, slot, step, here), slot, step.axis, here)
        for array, slot in zip(pieces, slots, strict=True)
    ]


def _chunks(turns: Any, slot: Slot, step: Region, here: Here) -> Any:
    """Of what a device made in all turns that of its chunks, the first of them in the turn of its own number.

    Where nothing lies along the stages the last one is asked alone, and where its chunks are is known: a place that
    differs from device to device makes an array of zeros for the gradient, in which it is then written.
    """
    chunks, last = turns_of(step.axis), here.size(step.stages) - 1
    if any(cut is not None and {*cut.axes} & {*step.stages} for cut in slot.layout.cuts):
        return lax.dynamic_slice_in_dim(turns, here.index(step.stages), chunks)
    return lax.slice_in_dim(turns, last, last + chunks)


def _chunk(body: Schedule, slot: int, loop: str, array: Any, here: Here) -> Any:
    kind = body.slots[slot]
    slices = [
        Slice(axis, turn_cut(cut, loop), kind.type.shape[axis])
        for axis, cut in enumerate(kind.layout.cuts)
        if cut is not None and loop in cut.axes
    ]
    return convert(array, slices, here)
