"""What crosses the edge of a loop in time: what each turn finds, and how the pieces of all turns become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.geometry.layout import Cut, Layout
from tapestry_jax.planning.geometry.time_axis import in_time, label, ring_of, turns_of
from tapestry_jax.planning.proof.changed import joined_along, sliced
from tapestry_jax.planning.proof.pieces import Piece, whole
from tapestry_jax.planning.proof.site import Site, refuse
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Slot

Pieces = list[Piece]


def check_loop(step: Region, site: Site) -> None:
    """A loop is opened once, a ring meets every device, and stages hand something on.

    Raises:
      PlanError: naming the loop.
    """
    axis, ring = step.axis, ring_of(step.axis)
    if axis in site.opened:
        refuse(step.path, f"runs {label(axis)} inside of the same loop")
    known = site.mesh.names
    missing = [name for name in (*step.stages, *((ring,) if ring is not None else ())) if name not in known]
    if missing:
        refuse(step.path, f"goes along `{missing[0]}`, which the mesh does not have")
    if ring is not None and turns_of(axis) != site.mesh.size((ring,)):
        turns, devices = turns_of(axis), site.mesh.size((ring,))
        refuse(step.path, f"turns {turns} times round `{ring}`, which has {devices} devices", *_never_met(step))
    if ring is not None and step.reverse:
        refuse(step.path, f"goes backwards round `{ring}`, while pieces are sent on forwards", *_second_turn(step))
    if ring is not None and step.stages:
        refuse(step.path, "is a ring and a pipeline at once")
    if step.rotating and ring is None:
        refuse(step.path, f"sends operands round in {label(axis)}, which is no ring")
    if step.ends and not step.scans:
        refuse(step.path, "looks for totals alone, and scans nothing")
    if bool(step.stages) != bool(step.handed):
        first, *_ = step.stages or ("no axis",)
        refuse(step.path, f"hands {len(step.handed)} operands from stage to stage along `{first}`")
    if len({*step.handed}) < len(step.handed):
        refuse(step.path, "hands an operand from stage to stage twice", f"operands {step.handed}")


def _never_met(step: Region) -> list[str]:
    """The cells of what goes round that the first device never meets, operand by operand."""
    turns, lines = turns_of(step.axis), list[str]()
    for number in step.rotating:
        kind = step.body.slots[step.body.inputs[number]]
        for axis, (cut, size) in enumerate(zip(kind.layout.cuts, kind.type.shape, strict=True)):
            if cut is not None and step.axis in cut.axes and cut.block * turns < size:
                lines.append(f"cells [{cut.block * turns}:{size}] along axis {axis} of operand {number} are never met")
    return lines


def _second_turn(step: Region) -> list[str]:
    """What arrives on the first device in the second turn, operand by operand."""
    last, lines = turns_of(step.axis) - 1, list[str]()
    for number in step.rotating:
        for axis, cut in enumerate(step.body.slots[step.body.inputs[number]].layout.cuts):
            if cut is not None and step.axis in cut.axes:
                cells = f"[{cut.block * last}:{cut.block * (last + 1)}]"
                lines.append(f"then cells {cells} along axis {axis} of operand {number} arrive on the first device")
    return lines


def rotated(pieces: Sequence[Piece], axis: str, site: Site, path: str) -> Pieces:
    """What a turn of a ring finds of an operand that goes round: in turn `t` the piece of the device `t` before.

    Raises:
      PlanError: where the operand does not lie on the ring's mesh axis, with one dimension alone.
    """
    ring = ring_of(axis)
    assert ring is not None
    lying = [number for number, piece in enumerate(pieces) if ring in dict(piece.digits)]
    others = [piece for number, piece in enumerate(pieces) if number not in lying[:1]]
    if not lying:
        refuse(path, f"sends an operand round `{ring}` that does not lie on it")
    site.check_together(others, (ring,), path, "sends pieces round")
    digits = {axis if name == ring else name: step for name, step in pieces[lying[0]].digits}
    found = list(pieces)
    found[lying[0]] = replace(found[lying[0]], digits=tuple(sorted(digits.items())))
    return found


def entering(pieces: Sequence[Piece], layout: Layout, shape: Sequence[int], axis: str, site: Site, path: str) -> Pieces:
    """What the first stage of a pipeline finds in a turn: the chunk that its layout names."""
    found = list(pieces)
    for number, cut in enumerate(layout.cuts):
        if cut is not None and axis in cut.axes:
            own = Cut((axis,), cut.block, cut.window, cut.striped and cut.axes == (axis,))
            found[number] = sliced(found[number], own, shape[number], site, path)
    return found


def put_together(pieces: Sequence[Piece], slot: Slot, axis: str, site: Site, path: str) -> Pieces:
    """What is outside of a loop when the pieces of all turns stand side by side.

    Raises:
      PlanError: where the turns make pieces of two axes, or pieces that are no neighbours.
    """
    made = [number for number, piece in enumerate(pieces) if axis in dict(piece.digits)]
    if not made:
        return list(pieces)
    if len(made) > 1:
        refuse(path, f"puts pieces of two axes together in {label(axis)}", f"axes {made} of {slot.type}")
    (at,) = made
    found, size = list(pieces), slot.type.shape[at]
    joined = joined_along(pieces[at], (axis,), size, site, path)
    cut = slot.layout.cuts[at]
    if cut is not None and cut.axes == (axis,):
        # Cut by this loop alone: the axis is whole now, loses its padding, and stripes are put in order.
        if joined.extent < size:
            refuse(path, f"puts {joined.extent} of {size} cells together in {label(axis)}")
        joined = whole(size)
    found[at] = joined
    return found


def check_padding(step: Region, held: Sequence[Sequence[Piece]]) -> None:
    """An operand that is padded before a loop is read in the slices it was padded for, and by nothing else.

    Raises:
      PlanError: naming the operation that reads it otherwise.
    """
    body = step.body
    for slot, pieces in zip(body.inputs, held, strict=False):
        padded = {change for inner in body.steps for change in _slices(inner, slot) if _pads(change, pieces, step.axis)}
        if not padded:
            continue
        for inner in body.steps:
            if slot in inner.operands and not padded <= set(_slices(inner, slot)):
                axes = sorted(change.axis for change in padded)
                refuse(inner.path, f"reads an operand whose axes {axes} are padded for the chunks of others")


def _slices(step: object, slot: int) -> Sequence[Slice]:
    if not isinstance(step, Convert) or step.source != slot:
        return ()
    return [change for change in step.changes if isinstance(change, Slice)]


def _pads(change: Slice, pieces: Sequence[Piece], loop: str) -> bool:
    if change.cut.axes != (loop,) or change.cut.striped:
        return False
    return change.cut.block * (turns_of(loop) - 1) + change.cut.extent > pieces[change.axis].extent


def closed(axes: Sequence[str], site: Site) -> tuple[str, ...]:
    """The loops among some axes that are not open here."""
    return tuple(axis for axis in in_time(axes) if axis not in site.opened)
