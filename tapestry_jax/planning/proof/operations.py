"""The proof of single operations: what they read, what they make, and how partial results become whole ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from combinators.graphs.nodes import Apply
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.folding.traffic import varying_leaves
from tapestry_jax.planning.geometry.time_axis import in_space, in_time
from tapestry_jax.planning.proof.coverage import check_covers
from tapestry_jax.planning.proof.folds import check_finished, check_fold, folded_axes, kept_pieces, scattered
from tapestry_jax.planning.proof.holdings import Holding, OwnPrefix, State
from tapestry_jax.planning.proof.ledger import Ledger
from tapestry_jax.planning.proof.needs import made_pieces, needed_pieces, state_pieces
from tapestry_jax.planning.proof.outside import check_end, needed_axes
from tapestry_jax.planning.proof.pieces import Piece, piece_of
from tapestry_jax.planning.proof.scans import after_turn, begun, check_scan
from tapestry_jax.planning.proof.site import check_same, refuse
from tapestry_jax.planning.scheduling.schedule import Finish, Run


def prove_run(ledger: Ledger, step: Run) -> None:
    """An operation reads what its pieces need, and its results are what it makes of them.

    Raises:
      PlanError: naming the operation, and boxes.
    """
    node, shaped = ledger.operation(step.node, step.path)
    cuts, over = dict(step.cuts), shaped.operation.over
    _check_cuts(ledger, step, shaped)
    check_covers(step.path, cuts, shaped.sizes, ledger.site.mesh)
    count = len(node.operands)
    _check_reads(ledger, step, node, shaped, step.operands[:count])
    before = step.operands[count:]
    if before and not (step.carried and over in cuts):
        refuse(step.path, f"is given {len(before)} operands more than it reads")
    if folded_axes(shaped, cuts, ledger.site):
        _prove_partial(ledger, step, shaped)
    elif over is not None and over in cuts:
        _prove_scan(ledger, step, shaped, before)
    elif step.carried:
        refuse(step.path, "hands on a state, or a total, of what is in no pieces")
    else:
        _store(ledger, step, _results(ledger, step, shaped), _values(ledger, step, shaped))


def prove_finish(ledger: Ledger, step: Finish) -> None:
    """States that loops have added up are merged and presented; or totals of devices become what lies before each.

    Raises:
      PlanError: naming the operation, and boxes.
    """
    _, shaped = ledger.operation(step.node, step.path)
    _check_cuts(ledger, step, shaped)
    held = [ledger.holding(slot, step.path) for slot in step.operands]
    over = shaped.operation.over
    if over is not None:
        check_scan(shaped, dict(step.cuts), ledger.site, step.path)
        totals = _states(ledger, step, shaped, over)
        starts = begun(shaped, step, held, ledger.site)
        _check_states(ledger, step, totals)
        _store(ledger, step, totals, starts)
        return
    wanted = [(step.node, leaf) for leaf in range(len(shaped.state))]
    states = [each for each in held if isinstance(each, State)]
    if len(states) != len(held) or [(each.node, each.leaf) for each in states] != wanted:
        refuse(step.path, "presents other states than its own", *(f"got {each}" for each in held[:2]))
    axes = in_space(folded_axes(shaped, dict(step.cuts), ledger.site))
    for state in states:
        check_finished(state, axes, shaped, ledger.site, step.path)
        check_end(step, state.cuts, shaped, ledger.site)
    _check_states(ledger, step, _states(ledger, step, shaped))
    _prove_merged(ledger, step, shaped, axes)


def _check_cuts(ledger: Ledger, step: Run | Finish, shaped: Shaped) -> None:
    signature = shaped.signature
    for dim, cut in step.cuts:
        if dim not in shaped.sizes or signature.role(dim) == "whole":
            refuse(step.path, f"cuts `{dim}`, which it needs as a whole", f"signature {signature}")
        if isinstance(step, Run):
            # A fold is finished behind its loops, and held to what was cut there.
            ledger.site.check_axes(cut.axes, step.path)
        carried = (any(dim in axis.names for axis in axes) for axes in shaped.result_axes)
        if signature.role(dim) != "fold" and not all(carried):
            refuse(step.path, f"cuts `{dim}`, which not every result carries", f"signature {signature}")
    if missing := needed_axes(step.cuts, ledger.site) - step.axes:
        refuse(step.path, f"is cut over `{min(missing)}`, along which its blocks are said to be equal")


def _check_reads(ledger: Ledger, step: Run, node: Apply, shaped: Shaped, given: Sequence[int]) -> None:
    if len(given) != len(node.operands):
        refuse(step.path, f"reads {len(given)} operands of its {len(node.operands)}")
    shapes = [ledger.graph.type_of(ref).shape for ref in node.operands]
    needs = needed_pieces(shaped, dict(step.cuts), shapes, ledger.site, step.path)
    gathers = dict(step.gathers)
    if beyond := gathers.keys() - {*range(len(given))}:
        refuse(step.path, f"gathers operand {min(beyond, key=str)}, which it does not read")
    for number, (slot, ref, need) in enumerate(zip(given, node.operands, needs, strict=True)):
        ledger.check_value(slot, ref, step.path)
        held = ledger.changed(slot, gathers.get(number, ()), step.path)
        what = f"reads other cells of operand {number} than it holds"
        check_same(ledger.site, step.path, what, need, held, ("reads", "holds"))


def _values(ledger: Ledger, step: Run | Finish, shaped: Shaped) -> list[Holding]:
    return [ledger.value(step.node, number) for number in range(len(shaped.results))]


def _results(ledger: Ledger, step: Run | Finish, shaped: Shaped) -> list[list[Piece]]:
    """What each device makes of the results."""
    cuts = dict(step.cuts)
    listed = zip(shaped.result_axes, shaped.results, strict=True)
    return [made_pieces(axes, kind.shape, shaped.sizes, cuts, ledger.site, step.path) for axes, kind in listed]


def _states(ledger: Ledger, step: Run | Finish, shaped: Shaped, without: str | None = None) -> list[list[Piece]]:
    """What each device makes of the leaves of a state; of a total, which is `without` the dimension of its scan."""
    found: list[list[Piece]] = []
    for names, leaf in zip(shaped.carrier, shaped.state, strict=True):
        kept = [(name, cast("int", size)) for name, size in zip(names, leaf.shape, strict=True) if name != without]
        shape = [size for _, size in kept]
        found.append(state_pieces([name for name, _ in kept], shape, dict(step.cuts), ledger.site.mesh))
    return found


def _store(ledger: Ledger, step: Run | Finish, made: Sequence[Sequence[Piece]], holdings: Sequence[Holding]) -> None:
    if not len(step.results) == len(made) == len(holdings):
        refuse(step.path, f"stores {len(step.results)} results of its {len(made)}")
    for number, (slot, pieces, holding) in enumerate(zip(step.results, made, holdings, strict=True)):
        ledger.check_made(slot, pieces, step.path, f"makes other cells of result {number} than it stores")
        ledger.give(slot, holding, step.path)
    if more := step.axes - needed_axes(step.cuts, ledger.site):
        refuse(step.path, f"is not cut over `{min(more)}`, along which its blocks are said to differ")


def _prove_partial(ledger: Ledger, step: Run, shaped: Shaped) -> None:
    """A fold whose dimensions are in pieces: its states are merged at once, or handed to the loops around."""
    cuts, site, path = dict(step.cuts), ledger.site, step.path
    axes = folded_axes(shaped, cuts, site)
    check_fold(shaped, cuts, path)
    folds = [dim for dim in shaped.signature.fold_dims if dim in cuts]
    folded = tuple(piece_of(cuts[dim], shaped.sizes[dim], site.mesh) for dim in folds)
    states = [State(step.node, leaf, axes, folded, step.cuts, path) for leaf in range(len(shaped.state))]
    if step.carried:
        _check_varying(ledger, step, shaped)
        _store(ledger, step, _states(ledger, step, shaped), states)
        return
    for state in states:
        check_finished(state, in_space(axes), shaped, site, path)
    _prove_merged(ledger, step, shaped, axes)


def _check_varying(ledger: Ledger, step: Run, shaped: Shaped) -> None:
    """What is said to be equal on all devices is decided by shapes alone: no data is asked for it there."""
    equal = [leaf for leaf, slot in enumerate(step.results) if not ledger.schedule.slots[slot].varying]
    if not step.axes or not equal:
        return
    node, _ = ledger.operation(step.node, step.path)
    kinds = [ledger.graph.type_of(ref).struct for ref in node.operands]
    varies = varying_leaves(shaped, kinds, dict(step.cuts), ledger.site.mesh)
    wrong = next((leaf for leaf in equal if varies[leaf]), None)
    if wrong is not None:
        what = f"says that leaf {wrong} of its state is the same along `{min(step.axes)}`, where it folds other cells"
        refuse(step.path, what)


def _prove_merged(ledger: Ledger, step: Run | Finish, shaped: Shaped, axes: tuple[str, ...]) -> None:
    """Devices along some mesh axes merge their states, and present the result or scatter it."""
    kept = kept_pieces(shaped, dict(step.cuts), ledger.site, shaped.signature.fold_dims)
    ledger.site.check_together(kept, axes, step.path, "merges states")
    made = _results(ledger, step, shaped)
    if step.scatter is not None:
        scattered(made[0], step.scatter, axes, shaped, ledger.site, step.path)
    _store(ledger, step, made, _values(ledger, step, shaped))


def _check_states(ledger: Ledger, step: Finish, needed: Sequence[Sequence[Piece]]) -> None:
    for number, (slot, pieces) in enumerate(zip(step.operands, needed, strict=True)):
        what = f"merges another piece of leaf {number} of its state than it holds"
        check_same(ledger.site, step.path, what, pieces, ledger.pieces(slot), ("merges", "holds"))


def _prove_scan(ledger: Ledger, step: Run, shaped: Shaped, before: Sequence[int]) -> None:
    """A scan whose dimension is in pieces: each goes on from the pieces before."""
    cuts, over, site, path = dict(step.cuts), shaped.operation.over, ledger.site, step.path
    assert over is not None
    check_scan(shaped, cuts, site, path)
    made, values = _results(ledger, step, shaped), _values(ledger, step, shaped)
    if not step.carried:
        if in_time(cuts[over].axes):
            refuse(path, f"begins anew in every turn over `{over}`", _second_chunk(shaped, step, ledger))
        _store(ledger, step, made, values)
        return
    totals = _states(ledger, step, shaped, over)
    held = [ledger.holding(slot, path) for slot in before]
    after, own = after_turn(shaped, step, held, ledger.value(step.node), site)
    for number, (slot, pieces) in enumerate(zip(before, totals, strict=True)):
        what = f"goes on from another piece of leaf {number} of its total than it holds"
        check_same(site, path, what, pieces, ledger.pieces(slot), ("goes on from", "holds"))
    results: list[Holding] = [OwnPrefix(step.node, path)] * len(values) if own else values
    _store(ledger, step, [*made, *totals], [*results, *after])


def _second_chunk(shaped: Shaped, step: Run, ledger: Ledger) -> str:
    over = shaped.operation.over
    assert over is not None
    cut = dict(step.cuts)[over]
    start = piece_of(cut, shaped.sizes[over], ledger.site.mesh).start({in_time(cut.axes)[-1]: 1}, ledger.site.mesh)
    return f"the second turn takes [{start}:{start + cut.block}] and does not go on from what lies before"
