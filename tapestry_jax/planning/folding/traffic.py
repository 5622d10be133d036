"""What merging states over a mesh sends: leaves that nobody needs, or that are the same everywhere, are not sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from combinators.index_space.tensor_type import is_inexact
from combinators.merging.blocks import combine_blocks
from combinators.operations.execute import present
from combinators.operations.operation import Operation
from combinators.operations.shaped import Shaped, shape
from combinators.settings import remembered
from tapestry_jax.planning.derivatives.dependence import Matrix, dependence, dependence_in
from tapestry_jax.planning.derivatives.gradients import telling_sizes, traced_states
from tapestry_jax.planning.folding.framed import framed, of_few_cells
from tapestry_jax.planning.folding.merges import Merge, local_sizes, local_state, merges
from tapestry_jax.planning.folding.sent import Sent, alone, closure, merged, nbytes, permuted, sides, sources
from tapestry_jax.planning.folding.sent_in_order import sent_in_order
from tapestry_jax.planning.geometry.hops import axes_apart
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import in_space, is_time

Cuts = dict[str, Cut]


def sent_by_fold(
    shaped: Shaped, operands: Sequence[Any], cuts: Cuts, mesh: MeshShape, live: Sequence[int]
) -> tuple[Sent, ...]:
    """The collectives that merge the states of a fold, of whose results `live` are needed."""
    # Found by tracing kernels and merges, which whoever compares plans asks for again and again.
    return _known_by_fold(shaped.operation, tuple(operands), tuple(sorted(cuts.items())), mesh, tuple(live))


@remembered(maxsize=4096)
def _known_by_fold(
    operation: Operation,
    operands: tuple[Any, ...],
    cuts: tuple[tuple[str, Cut], ...],
    mesh: MeshShape,
    live: tuple[int, ...],
) -> tuple[Sent, ...]:
    return tuple(_sent_by_fold(shape(operation, operands), operands, dict(cuts), mesh, live))


def _sent_by_fold(
    shaped: Shaped, operands: Sequence[Any], cuts: Cuts, mesh: MeshShape, live: Sequence[int]
) -> Iterator[Sent]:
    state, carrier = local_state(shaped, cuts)
    varies = varying_leaves(shaped, operands, cuts, mesh)
    needed = sources(_presented(shaped.operation, tuple(operands), tuple(of_few_cells(carrier, state))), live)
    assert shaped.operation.monoid is not None
    folded = in_space(axis for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes)
    for merge in merges(shaped):
        leaves, axes = [state[i] for i in merge.leaves], [carrier[i] for i in merge.leaves]
        moving = [varies[i] for i in merge.leaves]
        wanted = {number for number, i in enumerate(merge.leaves) if i in needed}
        sending: Iterable[Sent]
        if merge.kind == "frame":
            sending = _sent_by_frame(merge, folded, axes, leaves, moving, wanted)
        elif merge.kind == "ordered":
            sending = sent_in_order(merge, folded, mesh, axes, leaves, moving, wanted)
        else:
            sending = [_sent_natively(merge, folded, leaves, n) for n in sorted(wanted) if moving[n]]
        for sent in sending:
            yield replace(sent, leaves=frozenset(merge.leaves[number] for number in sent.leaves))


@remembered(maxsize=4096)
def _presented(operation: Operation, operands: tuple[Any, ...], state: tuple[Any, ...]) -> Matrix:
    """For every result of a fold the leaves of its state that it depends on."""
    shaped = shape(operation, operands)
    return dependence(lambda leaves: present(shaped, leaves), state)


def _sent_natively(merge: Merge, folded: tuple[str, ...], leaves: Sequence[Any], number: int) -> Sent:
    leaf = leaves[number]
    size = math.prod(leaf.shape) if merge.kind in ("or", "and") else nbytes(leaf)
    counted = is_inexact(leaf.dtype) and merge.kind in ("max", "min")
    return Sent("all-reduce", folded, size, "all-reduce" if counted else None, frozenset({number}))


def _sent_by_frame(
    merge: Merge,
    folded: tuple[str, ...],
    axes: Sequence[Any],
    leaves: list[Any],
    moving: list[bool],
    wanted: set[int],
) -> Iterator[Sent]:
    if not wanted:
        return
    frame = framed(merge, axes, leaves)
    of_restore = sources(frame.restored, wanted)
    needed_addends = {i - frame.references for i in of_restore if i >= frame.references}
    needed_reference = {i for i in of_restore if i < frame.references}
    needed_reference |= {i - len(leaves) for i in sources(frame.expressed, needed_addends) if i >= len(leaves)}
    summary_moves = [any(hit and moves for hit, moves in zip(row, moving, strict=True)) for row in frame.summarised]
    summed = set[int]()
    for number in sorted(sources(frame.located, needed_reference)):
        if summary_moves[number]:
            source = frame.as_summary[number]
            if merge.monoid.frame is not None and merge.monoid.frame.merge == "sum" and source is not None:
                summed.add(source)
            own = sources(frame.summarised, [number])
            yield Sent("all-reduce", folded, nbytes(frame.summary[number]), leaves=frozenset(own))
    for number in sorted(needed_addends):
        row = frame.expressed[number]
        if frame.as_addends[number] in summed:
            continue  # XLA merges equal sums: a count is a summary and an addend.
        # The reference has been made to vary again before it is used.
        if any(row[len(leaves) :]) or any(h and m for h, m in zip(row[: len(leaves)], moving, strict=True)):
            deciding = {place for place, hit in enumerate(row) if hit}
            behind = {place - len(leaves) for place in deciding if place >= len(leaves)}
            own = {place for place in deciding if place < len(leaves)}
            own |= sources(frame.summarised, sources(frame.located, behind))
            yield Sent("all-reduce", folded, nbytes(frame.addends[number]), leaves=frozenset(own))


def sent_by_scan(
    shaped: Shaped, cuts: Cuts, mesh: MeshShape, live: Sequence[int], *, in_turns: bool = False
) -> Iterator[Sent]:
    """The exchanges of the totals of a scan, in order; `in_turns` where each device goes on turn by turn."""
    monoid, over, reverse = shaped.operation.monoid, shaped.operation.over, shaped.operation.reverse
    assert monoid is not None and over is not None
    axes = cuts[over].axes
    devices = mesh.size(axes)
    totals, inner = local_state(shaped, cuts, without=over)
    state, _ = local_state(shaped, cuts)
    needed = sources(dependence(lambda leaves: present(shaped, leaves), state), live)
    matrix = dependence(lambda a, b: combine_blocks(monoid, shaped.state_tree, inner, a, b), totals, totals)

    def of_others_and_own(wanted: set[int]) -> tuple[set[int], set[int]]:
        first, second = sides(matrix, wanted)
        return (second, first) if reverse else (first, second)

    wanted, _ = of_others_and_own(needed)
    # From turn to turn a total depends on more and more leaves of the one before.
    while in_turns and not (more := of_others_and_own(wanted)[0]) <= wanted:
        wanted |= more
    exchanges: list[tuple[int, set[int]]] = []
    for distance in reversed(scan_distances(devices)):
        earlier, own = of_others_and_own(wanted)
        exchanges.append((distance, earlier))
        wanted = earlier | own
    exchanges.append((1, wanted))
    # A block of one step has merged nothing yet.
    one = not in_turns and local_sizes(shaped, cuts)[over] < 2
    reach = alone(len(totals)) if one else [frozenset(closure(matrix, {leaf})) for leaf in range(len(totals))]
    for distance, moved in reversed(exchanges):
        apart = axes_apart([(0, devices - distance)], distance, axes, mesh)
        for leaf in sorted(moved):
            yield permuted(totals[leaf], apart, reach[leaf])
        reach = merged(matrix, reach)


def scan_distances(devices: int) -> list[int]:
    """The distances of a mesh scan's exchanges after the first one: 1, 2, 4, ... below `devices - 1`."""
    distances: list[int] = []
    distance = 1
    while distance < devices - 1:
        distances.append(distance)
        distance *= 2
    return distances


def uneven_folds(shaped: Shaped, cuts: Cuts, mesh: MeshShape) -> list[str]:
    """The cut fold dimensions whose blocks are padded."""
    return [
        dim
        for dim in shaped.signature.fold_dims
        if dim in cuts and cuts[dim].block * mesh.size(cuts[dim].axes) != shaped.sizes[dim]
    ]


def varying_leaves(shaped: Shaped, operands: Sequence[Any], cuts: Cuts, mesh: MeshShape) -> list[bool]:
    """Which leaves of a device's state can differ from device to device: a count of rows, say, cannot.

    Args:
      shaped: a fold.
      operands: types of its operands.
      cuts: of its dimensions, over mesh axes and loops.
      mesh: the shape of the mesh.
    """
    if uneven_folds(shaped, cuts, mesh):
        return [True] * len(shaped.state)
    sizes = telling_sizes(shaped, local_sizes(shaped, cuts))
    varies = [*_varying(shaped.operation, tuple(operands), sizes)]
    if any(is_time(axis) for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes):
        # Loops add leaves up one by one only where they are folded natively.
        assert shaped.operation.monoid is not None
        for merge in merges(shaped):
            if merge.kind in ("frame", "ordered"):
                for leaf in merge.leaves:
                    varies[leaf] = True
    return varies


@remembered(maxsize=4096)
def _varying(operation: Operation, operands: tuple[Any, ...], sizes: tuple[tuple[str, int], ...]) -> tuple[bool, ...]:
    """Which leaves of the state of a block of these sizes depend on any operand."""
    return tuple(any(row) for row in dependence_in(traced_states(operation, operands, sizes).jaxpr))
