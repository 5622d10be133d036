"""The proof of loops in time: what their turns find, carry, hand on and give back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from combinators.graphs.nodes import Loop, Ref
from tapestry_jax.planning.geometry.time_axis import label
from tapestry_jax.planning.proof.folds import added_up, two_boxes
from tapestry_jax.planning.proof.holdings import Entering, Holding, Leaving, OfLastStage, State, Value
from tapestry_jax.planning.proof.ledger import Ledger
from tapestry_jax.planning.proof.outside import check_one_way, cuts_inside
from tapestry_jax.planning.proof.pieces import Piece
from tapestry_jax.planning.proof.scans import entering_totals, leaving_totals
from tapestry_jax.planning.proof.site import check_same, refuse
from tapestry_jax.planning.proof.turns import check_loop, check_padding, closed, entering, put_together, rotated
from tapestry_jax.planning.scheduling.schedule import Region

Follow = Callable[[Ledger], None]


def prove_region(ledger: Ledger, step: Region, follow: Follow) -> None:
    """The turns of a loop find their pieces, and what they make is put together, added up or handed on.

    Args:
      ledger: of the schedule around the loop.
      step: the loop.
      follow: follows the steps of its body.

    Raises:
      PlanError: naming the loop or an operation in it, and boxes.
    """
    check_loop(step, ledger.site)
    body, path = step.body, step.path
    scanned = step.scanned
    plain = len(body.inputs) - scanned
    if len(step.operands) < plain or body.mesh != ledger.schedule.mesh or body.graph is not ledger.graph:
        refuse(path, "runs a body of another program")
    inner = Ledger(body, ledger.site.inside(step.axis, step.stages))
    handed = _take_in(ledger, step, inner, plain)
    starts = [ledger.holding(slot, path) for slot in step.operands[plain:]]
    for slot, total in zip(body.inputs[plain:], entering_totals(step, starts, ledger.graph), strict=True):
        inner.give(slot, total, path)
    for slot, operand in zip(body.inputs[plain:], step.operands[plain:], strict=False):
        what = "begins with another piece of a total than it is given"
        check_same(ledger.site, path, what, inner.pieces(slot), ledger.pieces(operand), ("begins with", "is given"))
    check_padding(step, [ledger.pieces(slot) for slot in step.operands[:plain]])
    follow(inner)
    _give_back(ledger, step, inner, handed)


def _take_in(ledger: Ledger, step: Region, inner: Ledger, plain: int) -> list[Value]:
    """Fill the inputs of a loop's body; returns the values that enter a pipeline."""
    body, path, handed = step.body, step.path, list[Value]()
    for number, (slot, operand) in enumerate(zip(body.inputs[:plain], step.operands, strict=False)):
        held, outer = ledger.holding(operand, path), ledger.pieces(operand)
        if ledger.schedule.slots[operand].type.struct != body.slots[slot].type.struct:
            refuse(path, f"hands its turns operand {number} as a value of another type")
        if isinstance(held, OfLastStage):
            refuse(path, "reads on all devices what the last stage alone has made", f"got {held}")
        if number in step.rotating:
            outer = rotated(outer, step.axis, ledger.site, path)
        elif number in step.handed:
            kind = body.slots[slot]
            outer = entering(outer, kind.layout, kind.type.shape, step.axis, inner.site, path)
            if not isinstance(held, Value):
                refuse(path, "lets something enter a pipeline that is no value", f"got {held}")
            handed.append(held)
            held = Entering(held.ref, held.path)
        what = f"hands its turns other cells of operand {number} than they expect"
        check_same(inner.site, path, what, inner.pieces(slot), outer, ("expects", "is handed"))
        inner.give(slot, held, path)
    return handed


def _give_back(ledger: Ledger, step: Region, inner: Ledger, handed: Sequence[Value]) -> None:
    body, path = step.body, step.path
    folded, scanned = step.folded, step.scanned
    made = [inner.holding(slot, path) for slot in body.outputs]
    carried = folded + scanned
    _check_stay(step, inner, folded, scanned)
    results = _added_up(ledger, step, made[:folded])
    totals = leaving_totals(step, made[folded:carried], ledger.graph)
    inside = list(body.outputs[:folded])
    if step.ends:
        results, inside = [*results, *totals], list(body.outputs[:carried])
    else:
        _check_handed(inner, step, handed)
        rest = slice(carried + len(handed), None)
        results, inside = [*results, *made[rest]], [*inside, *body.outputs[rest]]
    if len(results) != len(step.results):
        refuse(path, f"gives {len(step.results)} of {len(results)} results")
    for number, (slot, within, holding) in enumerate(zip(step.results, inside, results, strict=True)):
        found = inner.pieces(within)
        if not step.ends and number >= folded:
            found = put_together(found, body.slots[within], step.axis, inner.site, path)
        ledger.check_made(slot, found, path, f"puts result {number} together in another layout than it says")
        lies = bool(ledger.schedule.slots[slot].layout.axes & {*step.stages})
        ledger.give(slot, _outside(ledger, step, holding, lies=lies), path)


def _outside(ledger: Ledger, step: Region, holding: Holding, *, lies: bool) -> Holding:
    """What a result is outside of its loop; of a pipeline that of the last stage, unless it `lies` along the stages."""
    if isinstance(holding, Leaving) or (isinstance(holding, Value) and step.stages and not lies):
        return OfLastStage(holding.ref, step.stages, holding.path)
    left = closed(holding.left, ledger.site) if isinstance(holding, State) else ()
    if left and isinstance(holding, State):
        what = f"leaves a state behind that the turns of {label(left[0])} have not added up"
        refuse(holding.path, what, two_boxes(holding, left[0], ledger.site))
    return holding


def _added_up(ledger: Ledger, step: Region, made: Sequence[Holding]) -> list[Holding]:
    wanted = [(node, leaf) for node, leaves in step.folds for leaf in range(leaves)]
    found: list[Holding] = []
    inside = cuts_inside(step.body) if wanted else {}
    for (node, leaf), state in zip(wanted, made, strict=True):
        path = ledger.graph.nodes[node].path
        if not isinstance(state, State) or (state.node, state.leaf) != (node, leaf):
            refuse(step.path, f"adds up what is not leaf {leaf} of the state of `{path}`", f"got {state}")
        check_one_way(state.cuts, inside[node], path)
        found.append(added_up(state, step.axis, ledger.operation(node, path)[1], ledger.site, state.path))
    return found


def _check_stay(step: Region, inner: Ledger, folded: int, scanned: int) -> None:
    """What a loop carries is of the same cells in every turn."""
    body = step.body
    for before, after in zip(body.inputs[len(body.inputs) - scanned :], body.outputs[folded:], strict=False):
        what = "hands the next turn another piece of a total than it expects"
        _check_on(inner, step, what, inner.pieces(before), inner.pieces(after))
    for slot in body.outputs[: folded + scanned]:
        if any(step.axis in dict(piece.digits) for piece in inner.pieces(slot)):
            refuse(step.path, f"carries another piece in every turn: {inner.known[slot]}")


def _check_handed(inner: Ledger, step: Region, handed: Sequence[Value]) -> None:
    """Every stage hands on what the next one takes in."""
    for number, value in enumerate(handed):
        sent, received = step.body.outputs[number], step.body.inputs[step.handed[number]]
        left = inner.holding(sent, step.path)
        if not isinstance(left, Leaving) or inner.source(_entered(inner, left)) != value.ref:
            refuse(step.path, f"hands on something else than stages take in as {value}", f"got {left}")
        what = f"hands on another piece of carry {number} than the next stage takes in"
        _check_on(inner, step, what, inner.pieces(received), inner.pieces(sent))


def _entered(inner: Ledger, left: Leaving) -> Ref:
    """What the first stage takes in for what a stage hands on."""
    loop = inner.graph.nodes[left.ref.node]
    assert isinstance(loop, Loop)
    return loop.operands[left.ref.output]


def _check_on(inner: Ledger, step: Region, what: str, expected: list[Piece], found: list[Piece]) -> None:
    check_same(inner.site, step.path, what, expected, found, ("expects", "is handed"))
