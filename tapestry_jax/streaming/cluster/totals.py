"""Scans on workers: what a range of turns goes on from is what all ranges before it come to.

A range that begins with nothing gives the total of its own turns; merged in order, totals are what the ranges behind
them begin with. A scan of what another one gives begins when that one is known: such scans take a round for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tapestry_jax.planning.scheduling.schedule import Run
from tapestry_jax.storage.protocols import Array
from tapestry_jax.streaming.kept.partials import Partials
from tapestry_jax.streaming.parts import Pass
from tapestry_jax.streaming.turn import Programs

Totals = dict[int, tuple[Array, ...]]
"""The leaves of the totals of scans, by node."""


def why_not(part: Pass) -> str | None:
    """Why the scans of a pass are not found range by range; None where they are."""
    known = {node for node, _, _ in _scans(part)}
    if part.region.ends or part.entering < len(part.region.operands):
        return "its scans go on from other devices"
    if any(node not in known for node, _ in part.region.scans):
        return "it scans in a loop inside of its turns"
    return None


def rounds(part: Pass) -> list[Pass]:
    """For every round the pass that finds the totals of its scans; scans of earlier rounds go on from what is known."""
    levels = _levels(part)
    return [_until(part, levels, level) for level in range(1 + max(levels.values(), default=-1))]


def read_before(partials: Partials, number: int, begin: int) -> Totals | None:
    """What the turns before `begin` come to, as a round needs it; None where the driver has not committed that."""
    if not begin or not number:
        return {}
    found = partials.read(_before(number, begin))
    return None if found is None else _by_node(found)


def commit_before(partials: Partials, number: int, begin: int, totals: Totals) -> None:
    """Leave it to workers."""
    named = {f"{node}/{leaf}": array for node, leaves in totals.items() for leaf, array in enumerate(leaves)}
    partials.commit(_before(number, begin), named)


def before_ranges(
    part: Pass, programs: Programs, node: int, own: Sequence[Sequence[Any]], cut: Sequence[tuple[int, int]]
) -> Iterator[Sequence[Any]]:
    """What all ranges before each but the first come to, in order.

    Args:
      part: the pass.
      programs: of the stream.
      node: of the scan.
      own: its totals over every range but the last, each begun with nothing.
      cut: the ranges, in the order in which they run.
    """
    number = [each for each, _ in part.region.scans].index(node)
    behind, before = programs.behind(part, number), own[0]
    yield before
    for (begin, stop), leaves in zip(cut[1:], own[1:], strict=True):
        # Those at the end of a dimension may have none.
        if _holds_some(part, node, begin, stop):
            before = behind(before, leaves, _holds_some(part, node, 0, begin))
        yield before


def _holds_some(part: Pass, node: int, begin: int, stop: int) -> bool:
    """Whether a scan meets a cell in some turns, counted in the order in which they run."""
    step, shaped = _run_of(part, node), part.region.body.graph.shaped(node)
    over = shaped.operation.over
    assert over is not None
    block, size = dict(step.cuts)[over].block, shaped.sizes[over]
    lowest = part.turns - stop if part.region.reverse else begin
    return lowest * block < size


def state_of(part: Pass, first: Sequence[Any], before: Mapping[int, Sequence[Any]]) -> list[Any]:
    """What a pass carries before its first turn, with known totals in place of nothing."""
    state = list(first)
    at = part.region.folded
    for node, leaves in part.region.scans:
        if node in before:
            state[at : at + leaves] = before[node]
        at += leaves
    return state


def totals_in(part: Pass, state: Sequence[Any]) -> Totals:
    """The totals in what a pass carries."""
    found, at = Totals(), part.region.folded
    for node, leaves in part.region.scans:
        found[node] = tuple(state[at : at + leaves])
        at += leaves
    return found


def _before(number: int, begin: int) -> str:
    return f"before-{number}-{begin}"


def _by_node(found: Mapping[str, Array]) -> Totals:
    nodes = dict.fromkeys(int(name.partition("/")[0]) for name in found)
    return {
        node: tuple(found[f"{node}/{leaf}"] for leaf in range(sum(name.startswith(f"{node}/") for name in found)))
        for node in nodes
    }


def _run_of(part: Pass, node: int) -> Run:
    return next(step for step in part.region.body.steps if isinstance(step, Run) and step.node == node)


def _scans(part: Pass) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Of every scan that is a step of a turn the node, and the slots of its total before and after the turn."""
    region, body = part.region, part.region.body
    own = {step.node for step in body.steps if isinstance(step, Run) and step.carried}
    folded, scanned = region.folded, region.scanned
    before, after = body.inputs[len(body.inputs) - scanned :], body.outputs[folded : folded + scanned]
    at = 0
    for node, leaves in region.scans:
        if node in own:
            yield node, before[at : at + leaves], after[at : at + leaves]
        at += leaves


def _levels(part: Pass) -> dict[int, int]:
    """Behind how many other scans, one behind the other, every scan stands."""
    scans = {node: {*before} for node, before, _ in _scans(part)}
    behind, levels = dict[int, int](), dict[int, int]()
    for step in part.region.body.steps:
        node = step.node if isinstance(step, Run) else None
        own = scans.get(node, set()) if node is not None else set[int]()
        depth = max((behind.get(slot, 0) for slot in step.operands if slot not in own), default=0)
        if node is not None and node in scans:
            levels[node] = depth
            depth += 1
        behind |= dict.fromkeys(step.results, depth)
    return levels


def _until(part: Pass, levels: Mapping[int, int], level: int) -> Pass:
    """The pass without all that the totals of scans up to a level do not need."""
    region, body = part.region, part.region.body
    kept = [scan for scan in _scans(part) if levels[scan[0]] <= level]
    outputs = tuple(slot for _, _, after in kept for slot in after)
    needed, steps = {*outputs}, list[Any]()
    for step in reversed(body.steps):
        if needed & {*step.results}:
            needed |= {*step.operands}
            steps.append(step)
    inputs = (*body.inputs[: part.entering], *(slot for _, before, _ in kept for slot in before))
    inside = replace(body, inputs=inputs, steps=tuple(reversed(steps)), outputs=outputs)
    scans = tuple((node, len(after)) for node, _, after in kept)
    loop = replace(region, folds=(), scans=scans, results=(), body=inside, ends=True)
    pieces = tuple(piece for piece in part.pieces if piece.slot in needed)
    anew = frozenset(node for node, _, _ in kept if levels[node] == level)
    return replace(part, region=loop, pieces=pieces, made=(), still=(), anew=anew)
