"""Loops of the program: every iteration once, each goes on from the one before, and finds its own slices."""

from __future__ import annotations

from collections.abc import Callable

from tapestry_jax.shards.parts import Piece, Ranges, Repeat, Take
from tapestry_jax.shards.proof.axes import counted, cover_fault
from tapestry_jax.shards.proof.site import Site, refuse
from tapestry_jax.shards.ranges import Range, whole


def prove_repeat(site: Site, step: Repeat, prove_body: Callable[[Site], None]) -> None:
    """The turns of a loop.

    Raises:
      PlanError: naming the loop, and boxes.
    """
    path, kinds = step.path, site.kinds
    if step.turn not in kinds or kinds[step.turn].count != step.turns or step.turn in site.loops or step.depth < 1:
        refuse(path, f"turns {step.turns} times along `{step.turn}`, which is no such loop")
    length = step.first + step.turns * step.depth
    if step.stage is not None:
        length = _staged(site, step)
    site.check_scope((), step.loops, path)
    inner = Site(site.shared, step.body, (*step.loops, step.turn), step.depth)
    takes = [each for each in step.body.steps if isinstance(each, Take)]
    if len(takes) != len(step.operands) or step.carries + len(step.axes) > len(takes):
        refuse(path, f"gives its body {len(step.operands)} operands of {len(takes)}")
    own = step.stage if step.stage is not None else whole(length)
    for number, (take, operand) in enumerate(zip(takes, step.operands, strict=True)):
        piece = site.piece(operand, path)
        _check_given(site, step, inner, number, take, piece, own)
    prove_body(inner)
    _give_back(site, step, inner, own, takes)


def _staged(site: Site, step: Repeat) -> int:
    """The iterations of a pipeline; each device has some of them."""
    own = step.stage
    assert own is not None
    size = own.limit[1]
    fault = cover_fault(own, size, counted(site.counts, (own,)))
    if fault is not None or own.count != step.turns or step.depth != 1 or step.first:
        refuse(step.path, "does not give every iteration to one stage", fault or f"{step.turns} turns of {own.count}")
    along = [site.kinds[name].along for name in step.loops if site.kinds[name].kind == "pipeline"]
    if not along or set(along[-1]) != set(own.coordinates):
        refuse(step.path, f"has stages along ({', '.join(own.coordinates)}), in a pipeline along {along}")
    if any(site.kinds[name].kind != "axis" for name in own.coordinates):
        refuse(step.path, "has stages along what is no mesh axis")
    return size


def _check_given(site: Site, step: Repeat, inner: Site, number: int, take: Take, piece: Piece, own: Range) -> None:
    path, place = step.path, number - step.carries
    box, kind = piece.box, site.value(piece).type
    wanted_shape = list(kind.shape)
    if 0 <= place < len(step.axes):
        at = step.axes[place]
        if at >= len(box) or box[at] != own:
            refuse(path, f"takes slices of operand {number} that it does not hold", f"of axis {at}, {own}")
        box = (*box[:at], *box[at + 1 :])
        del wanted_shape[at]
    taken = step.body.pieces[take.result]
    inside = step.body.values[taken.value].type
    if (inside.dtype, list(inside.shape)) != (kind.dtype, wanted_shape) or piece.partial:
        refuse(path, f"hands its body operand {number} as a tensor of another type", f"{kind}, then {inside}")
    if box != taken.box:
        refuse(path, f"hands its body another box of operand {number} than it takes", _told(box, taken.box))
    first = tuple((name, 0) for name in (step.stage.coordinates if step.stage is not None else ()))
    wanted = first if number < step.carries else ()
    if set(piece.only) != set(wanted):
        refuse(path, f"takes operand {number} in where it is not", f"held on {piece.only}, wanted on {wanted}")
    if not set(piece.loops) <= {*site.loops, *inner.loops}:
        refuse(path, f"takes operand {number} from another loop")


def _give_back(site: Site, step: Repeat, inner: Site, own: Range, takes: list[Take]) -> None:
    body, path = step.body, step.path
    if not len(body.outputs) == len(step.results) == len(step.makes):
        refuse(path, f"gives {len(step.results)} of {len(body.outputs)} results")
    last = tuple((name, site.counts[name] - 1) for name in (step.stage.coordinates if step.stage is not None else ()))
    for number, ((_, output), result) in enumerate(zip(body.outputs, step.results, strict=True)):
        found, made = body.pieces[output], site.make(result, path)
        is_carry = number < step.carries
        if is_carry and found.box != body.pieces[takes[number].result].box:
            told = _told(body.pieces[takes[number].result].box, found.box)
            refuse(path, f"hands the next turn another box of carry {number} than it takes", told)
        box = found.box if is_carry else (own, *found.box)
        if made.box != box:
            refuse(path, f"makes another box of result {number} than its turns do", _told(box, made.box))
        kind, inside = site.value(made).type, body.values[found.value].type
        shape = inside.shape if is_carry else (own.limit[1], *inside.shape)
        if (kind.dtype, tuple(kind.shape)) != (inside.dtype, tuple(shape)):
            refuse(path, f"makes result {number} of another type than its turns do", f"{kind}, not {inside}")
        if set(made.only) != set(last if is_carry else ()):
            refuse(path, f"gives result {number} where it is not", f"on {made.only}")
        is_own = made.value == step.makes[number]
        if is_own == site.value(made).state:
            refuse(path, f"gives result {number} as another tensor", site.told(result))
        if made.loops != inner.loops[:-1] and step.operands:
            refuse(path, f"gives result {number} in other loops than it runs in", f"{made.loops}")


def _told(left: Ranges, right: Ranges) -> str:
    for axis, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return f"along axis {axis}: {one}, then {other}"
    return f"{len(left)} axes, then {len(right)}"
