"""The proof of repetitions: every turn finds what the one before has made, and its own slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from combinators.graphs.nodes import Input, Loop, Ref
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.proof.holdings import Entering, Leaving
from tapestry_jax.planning.proof.ledger import Ledger
from tapestry_jax.planning.proof.pieces import piece_of, pieces_of
from tapestry_jax.planning.proof.site import check_same, refuse
from tapestry_jax.planning.scheduling.schedule import Convert, Repeat, Schedule


def prove_repeat(
    ledger: Ledger, step: Repeat, convert: Callable[[Ledger, Convert], None], follow: Callable[[Ledger], None]
) -> None:
    """The turns of a repetition follow one another, as often as the program says; stages have their own layers.

    Args:
      ledger: of the schedule around it.
      step: the repetition.
      convert: follows one change of layout.
      follow: follows the steps of the body.

    Raises:
      PlanError: naming the repetition or an operation in it, and boxes.
    """
    loop, body, path = ledger.graph.nodes[step.node], step.body, step.path
    if not isinstance(loop, Loop) or body.graph != loop.body or body.mesh != ledger.schedule.mesh:
        refuse(path, "runs a body of another program")
    _check_turns(ledger, step, loop)
    inner = Ledger(body, ledger.site)
    _take_in(ledger, step, loop, inner)
    _check_prologue(step)
    for early in step.prologue:
        convert(inner, early)
    follow(inner)
    if len(step.results) != len(body.outputs):
        refuse(path, f"stores {len(step.results)} results of its {len(body.outputs)}")
    for number, ((name, ref), slot) in enumerate(zip(loop.body.outputs, body.outputs, strict=True)):
        inner.check_value(slot, ref, f"{path}/output {name}")
        found = inner.pieces(slot)
        if number < step.carries:
            what = f"hands the next turn another piece of carry {number} than it expects"
            expected = inner.pieces(body.inputs[number])
            check_same(ledger.site, path, what, expected, found, ("expects", "is handed"))
        else:
            found = [piece_of(step.stage, loop.length, ledger.site.mesh), *found]
        ledger.check_made(step.results[number], found, path, f"makes other cells of result {number} than it stores")
        value = ledger.value(step.node, number)
        is_handed = step.stage is not None and number < step.carries
        ledger.give(step.results[number], Leaving(value.ref, path) if is_handed else value, path)


def _take_in(ledger: Ledger, step: Repeat, loop: Loop, inner: Ledger) -> None:
    """Fill the inputs of the body: carries, slices, constants."""
    mesh, path = ledger.site.mesh, step.path
    places = [index for index, node in enumerate(loop.body.nodes) if isinstance(node, Input)]
    listed = zip(step.operands, step.body.inputs, loop.operands, places, strict=True)
    for number, (operand, slot, ref, place) in enumerate(listed):
        layout = ledger.schedule.slots[operand].layout
        _check_operand(ledger, step, number, operand, ref)
        sliced = number - step.carries
        if 0 <= sliced < len(step.axes):
            at = step.axes[sliced]
            own = piece_of(step.stage, loop.length, mesh)
            if piece_of(layout.cuts[at], loop.length, mesh) != own:
                shape = ledger.schedule.slots[operand].type.shape
                wanted = [*pieces_of(layout, shape, mesh)]
                wanted[at] = own
                what = f"takes slices of operand {number} that it does not hold"
                check_same(ledger.site, path, what, wanted, pieces_of(layout, shape, mesh), ("takes", "holds"))
            layout = Layout(layout.cuts[:at] + layout.cuts[at + 1 :])
        found = pieces_of(layout, step.body.slots[slot].type.shape, mesh)
        what = f"hands its turns other cells of operand {number} than they expect"
        check_same(ledger.site, path, what, inner.pieces(slot), found, ("expects", "is handed"))
        inner.give(slot, replace(inner.value(place), path=f"{path}/{loop.body.nodes[place].path}"), path)


def _check_turns(ledger: Ledger, step: Repeat, loop: Loop) -> None:
    stage, stages = step.stage, ledger.site.stages
    if step.until != loop.until:
        ends = "when a carry holds", "after all turns"
        what = f"ends {ends[not step.until]}, where its program ends {ends[not loop.until]}"
        refuse(step.path, what, f"at most {loop.length} turns")
    if (step.carries, step.axes) != (loop.carries, loop.axes):
        refuse(step.path, "carries, or slices, other operands than its program")
    if stage is None:
        if step.length != loop.length:
            low, high = sorted((step.length, loop.length))
            more = "left out" if step.length == low else "made up"
            what = f"turns {step.length} times, where its program turns {loop.length} times"
            refuse(step.path, what, f"the turns [{low}:{high}] are {more}")
        return
    if stage.axes != stages:
        ways = f"the layers [{stage.block}:{2 * stage.block}] lie on the second device along each"
        what = f"has stages along ({', '.join(stage.axes)}), in a pipeline along ({', '.join(stages)})"
        refuse(step.path, what, ways)
    turns = stage.block * ledger.site.mesh.size(stage.axes)
    if step.length != stage.block or step.layers != loop.length or turns < loop.length:
        refuse(step.path, f"turns {step.length} times in stages of {stage.block} layers, of {loop.length} in all")


def _check_operand(ledger: Ledger, step: Repeat, number: int, operand: int, ref: Ref) -> None:
    if step.stage is None or number >= step.carries:
        ledger.check_value(operand, ref, step.path)
        return
    held = ledger.holding(operand, step.path)
    if held != Entering(ledger.source(ref)):
        refuse(step.path, f"takes in something else than carry {number}", f"got {held}")


def _check_prologue(step: Repeat) -> None:
    """What runs once before the loop depends on constants alone, or changes no cell of a slice."""
    first = step.carries + len(step.axes)
    constants, slices = set(step.body.inputs[first:]), set(step.body.inputs[step.carries : first])
    for early in step.prologue:
        if early.source in constants:
            constants.add(early.result)
        elif early.source in slices and not _moves(step.body, early):
            slices.add(early.result)
        else:
            refuse(early.path, f"is moved out of the loop `{step.path}`, although its turns differ")


def _moves(body: Schedule, step: Convert) -> bool:
    return body.slots[step.source].layout != body.slots[step.result].layout
