"""Loops in time: what their turns take in, and what becomes of what they make.

They are not nested here: what stands in one has the loop among its coordinates, and what leaves it is moved, or merged,
along it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tapestry_jax.planning.geometry.time_axis import ring_of, turns_of
from tapestry_jax.planning.scheduling.schedule import Region
from tapestry_jax.shards.parts import Coordinate, Move
from tapestry_jax.shards.writing.folds import merged
from tapestry_jax.shards.writing.scope import Scope


def write_region(scope: Scope, step: Region, write: Callable[[Scope], None]) -> None:
    """The turns of a loop, written by `write`, and what they make."""
    if step.ends:
        # What a pass over all turns finds, for scans to begin with, is the chain of the scan itself.
        scope.totals.update(step.results)
        return
    ring = ring_of(step.axis)
    kind = "pipeline" if step.stages else "turns" if ring is None else "ring"
    along = step.stages or ((ring,) if ring is not None else ())
    name = scope.common.coordinate(Coordinate(step.axis, turns_of(step.axis), kind, along))
    inner = replace(
        scope,
        schedule=step.body,
        loops=(*scope.loops, name),
        held={},
        totals=set(),
        called={**scope.called, step.axis: name},
    )
    _take_in(scope, step, inner)
    write(inner)
    folded, scanned = step.folded, step.scanned
    _add_up(scope, step, inner)
    scope.totals.update(slot for slot in step.results if slot not in scope.held)
    outputs = step.body.outputs[folded + scanned + len(step.handed) :]
    for slot, within in zip(step.results[folded:], outputs, strict=True):
        if within in inner.held:
            scope.totals.discard(slot)
            scope.held[slot] = _put_together(scope, step, inner.held[within], slot, name)


def _take_in(scope: Scope, step: Region, inner: Scope) -> None:
    plain = len(step.body.inputs) - step.scanned
    inner.totals.update(step.body.inputs[plain:])
    for number, (slot, operand) in enumerate(zip(step.body.inputs[:plain], step.operands, strict=False)):
        if operand in scope.totals:
            inner.totals.add(slot)
        elif number in step.rotating:
            inner.held[slot] = _around(inner, scope.held[operand], slot, step)
        elif number in step.handed:
            last = tuple((axis, 0) for axis in scope.real(step.stages))
            known = scope.tables.pieces[scope.held[operand]]
            result = inner.piece(known.value, slot, substep=known.substep, only=last)
            scope.tables.steps.append(Move(step.path, scope.held[operand], result, (), ("first stage",)))
            inner.held[slot] = result
        else:
            inner.held[slot] = scope.held[operand]


def _around(inner: Scope, source: int, slot: int, step: Region) -> int:
    """What goes round a ring, as every turn holds it."""
    ring = ring_of(step.axis)
    assert ring is not None
    known = inner.tables.pieces[source]
    result = inner.tables.piece(replace(known, box=inner.box_of_slot(slot), loops=inner.loops))
    inner.tables.steps.append(Move(step.path, source, result, inner.real((ring,)), ("ring",)))
    return result


def _add_up(scope: Scope, step: Region, inner: Scope) -> None:
    start = 0
    for node, leaves in step.folds:
        slots = step.body.outputs[start : start + leaves]
        state = tuple(inner.held[slot] for slot in slots)
        whole = merged(inner, step, scope.schedule.graph.shaped(node), state, (step.axis,), turns=True)
        scope.held.update(zip(step.results[start : start + leaves], whole, strict=True))
        start += leaves


def _put_together(scope: Scope, step: Region, source: int, slot: int, name: str) -> int:
    """What the turns of a loop have made, side by side."""
    known = scope.tables.pieces[source]
    loops = tuple(loop for loop in known.loops if loop != name)
    result = scope.tables.piece(replace(known, box=scope.box_of_slot(slot), loops=loops))
    over = (name,) if scope.common.mesh.real((step.axis,)) else ()
    scope.tables.steps.append(Move(step.path, source, result, over, ("stack",)))
    return result
