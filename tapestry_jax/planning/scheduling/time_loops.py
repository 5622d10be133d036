"""The steps of loops in time: what is carried, stacked and finished behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from combinators.errors import PlanError, message
from combinators.graphs.nodes import Ref
from tapestry_jax.planning.geometry.layout import Cut, Layout
from tapestry_jax.planning.geometry.opening import made_outside, stacked, streams
from tapestry_jax.planning.geometry.time_axis import dim_of, in_space, in_time, label, spread
from tapestry_jax.planning.scheduling.demands import Demands
from tapestry_jax.planning.scheduling.frame import Frame
from tapestry_jax.planning.scheduling.operations import schedule_finish
from tapestry_jax.planning.scheduling.reads import all_axes, fold_axes
from tapestry_jax.planning.scheduling.regions import Group, Item
from tapestry_jax.planning.scheduling.schedule import Finish, Region
from tapestry_jax.planning.scheduling.totals import Wiring, first_passes, passed_through

Layouts = Mapping[int, Layout]
RunItems = Callable[[Iterable[Item], Frame, Layouts], None]


def schedule_region(demands: Demands, group: Group, frame: Frame, outputs: Layouts, run: RunItems) -> None:
    """Add a loop in time.

    Args:
      demands: of the graph.
      group: the operations that share the loop.
      frame: where steps are collected.
      outputs: layouts of outputs by position.
      run: adds the steps of items to a frame.
    """
    axis, mesh = group.axis, frame.mesh
    inner = Frame(demands.graph, mesh, (*frame.opened, axis), frame)
    inner.taken = demands.taken
    run(group.items, inner, outputs)
    states = [(node, slots) for node, slots in inner.states.items() if axis in _fold_axes(demands, node)]
    # Where the loop runs over a dimension of the state, each turn makes another piece of it.
    pieces = [(node, slots) for node, slots in inner.states.items() if axis not in _fold_axes(demands, node)]
    wanted = demands.wanted_outside(group.nodes)
    made = [ref for ref in inner.home if ref in wanted and streams(inner.layout_of(ref), axis)]
    results: list[int] = []
    for node, slots in states:
        frame.states[node] = tuple(frame.add(inner.slots[slot]) for slot in slots)
        results += frame.states[node]
    for node, slots in pieces:
        known = [inner.slots[slot] for slot in slots]
        frame.states[node] = tuple(frame.add(replace(s, layout=stacked(s.layout, axis))) for s in known)
        results += frame.states[node]
    path = f"{demands.prefix}{dim_of(axis)} in {label(axis)}"
    blocks = [_in_blocks(inner, ref, axis, path) for ref in made]
    for ref, inside in zip(made, blocks, strict=True):
        slot = inner.slots[inside]
        results.append(frame.store(ref, stacked(slot.layout, axis), slot.varying))
    totals = [(node, before, after) for node, (before, after) in inner.totals.items()]
    around = [total for total in totals if axis not in _scanned(demands, total[0]).axes]
    # Scans that go on from other devices come first, since their starts are operands.
    own = sorted((t for t in totals if t not in around), key=lambda t: not in_space(_scanned(demands, t[0]).axes))
    passed = passed_through(around, axis, inner, frame, path)
    results += (outer for outer, _ in passed)
    reverse = _direction(demands, [node for node, _, _ in own], axis)
    meshed = [total for total in own if in_space(_scanned(demands, total[0]).axes)]
    starts = first_passes(Wiring(axis, frame, inner, reverse, path), meshed, partial(_before, demands, frame))
    given = (*inner.inputs, *(slot for _, before, _ in own for slot in before))
    added = (*(s for _, slots in states for s in slots), *(s for _, _, after in own for s in after))
    parts = (
        *(s for _, slots in pieces for s in slots),
        *blocks,
        *(s for _, s in passed),
    )
    body = inner.schedule(given, (*added, *parts))
    folds = tuple((node, len(slots)) for node, slots in states)
    scans = tuple((node, len(after)) for node, _, after in own)
    frame.steps.append(
        Region(
            axis,
            (*inner.operands, *starts),
            tuple(results),
            body,
            tuple(inner.rotating),
            folds,
            scans,
            reverse,
            path,
        )
    )
    for node, _ in states:
        if not set(in_time(_fold_axes(demands, node))) & set(frame.opened):
            schedule_finish(demands, node, frame, outputs)


def _in_blocks(inner: Frame, ref: Ref, axis: str, path: str) -> int:
    """The slot of a value that leaves a loop, in which every cell is made in one turn alone."""
    known = inner.slots[inner.home[ref]]
    cuts = (
        Cut(cut.axes, cut.block) if cut is not None and cut.window is not None and axis in cut.axes else cut
        for cut in known.layout.cuts
    )
    return inner.convert(ref, Layout(tuple(cuts)), known.varying, path)


def _fold_axes(demands: Demands, index: int) -> tuple[str, ...]:
    return fold_axes(demands.shaped[index], demands.cuts[index])


def _scanned(demands: Demands, index: int) -> Cut:
    """The cut of the dimension that a scan runs over."""
    over = demands.shaped[index].operation.over
    assert over is not None
    return demands.cuts[index][over]


def _before(demands: Demands, frame: Frame, index: int, totals: tuple[int, ...]) -> tuple[int, ...]:
    """Add the step that tells every device what the devices before it come to."""
    cuts = made_outside(demands.cuts[index], frame.opened, ())
    axes = spread(all_axes(cuts.values())) | frame.stages
    results = tuple(frame.add(frame.slots[slot]) for slot in totals)
    path = demands.prefix + demands.graph.nodes[index].path
    frame.steps.append(Finish(index, totals, results, tuple(cuts.items()), axes, None, path))
    return results


def _direction(demands: Demands, scans: Iterable[int], axis: str) -> bool:
    """Whether a loop takes the last chunk first; its scans must agree."""
    shaped = {demands.prefix + demands.graph.nodes[node].path: demands.shaped[node] for node in scans}
    reverse = {path: each.operation.reverse for path, each in shaped.items()}
    if len(set(reverse.values())) > 1:
        raise PlanError(
            message(
                f"scans forwards and backwards share the loop over {label(axis)} of `{dim_of(axis)}`",
                *(f"`{path}` runs {'from the end' if each else 'from the start'}" for path, each in reverse.items()),
                remedy=f"Except one of them: ops={{{next(iter(reverse))!r}: {{{dim_of(axis)!r}: None}}}}.",
            )
        )
    return any(reverse.values())
