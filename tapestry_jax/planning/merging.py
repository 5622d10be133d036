"""What merging states over a mesh sends: leaves that nobody needs, or that are the same everywhere, are not sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from combinators.blocks import combine_blocks
from combinators.execute import present, states
from combinators.shaped import Shaped, block_structs
from combinators.tensor_type import is_inexact
from tapestry_jax.planning.dependence import Matrix, dependence, passed_through
from tapestry_jax.planning.folds import Merge, local_sizes, local_state, mapped_frame, merges
from tapestry_jax.planning.layout import Cut
from tapestry_jax.planning.mesh_shape import MeshShape

Cuts = dict[str, Cut]


@dataclass(frozen=True)
class Sent:
    """One leaf in one collective.

    Attributes:
      kind: of the collective.
      bytes: per device.
      smooth: whether the leaf has derivatives.
      extremum: whether its derivative needs a count of the devices that attain it.
    """

    kind: str
    bytes: int
    smooth: bool
    extremum: bool = False


def sent_by_fold(
    shaped: Shaped, operands: Sequence[Any], cuts: Cuts, mesh: MeshShape, live: Sequence[int]
) -> Iterator[Sent]:
    """The collectives that merge the states of a fold, of whose results `live` are needed."""
    state, carrier = local_state(shaped, cuts)
    varies = _varying_leaves(shaped, operands, cuts, mesh)
    needed = _sources(dependence(lambda leaves: present(shaped, leaves), state), live)
    assert shaped.operation.monoid is not None
    devices = mesh.size(a for dim in shaped.signature.fold_dims if dim in cuts for a in cuts[dim].axes)
    for merge in merges(shaped.operation.monoid, shaped.state_tree):
        leaves, axes = [state[i] for i in merge.leaves], [carrier[i] for i in merge.leaves]
        moving = [varies[i] for i in merge.leaves]
        wanted = {number for number, i in enumerate(merge.leaves) if i in needed}
        if merge.kind == "frame":
            yield from _sent_by_frame(merge, axes, leaves, moving, wanted)
        elif merge.kind == "ordered":
            combined = dependence(
                lambda a, b, m=merge, c=axes: combine_blocks(m.monoid, m.tree, c, a, b), leaves, leaves
            )
            for number in sorted(_closure(combined, wanted, len(leaves))):
                if moving[number]:
                    yield Sent("all-gather", nbytes(leaves[number]) * devices, is_inexact(leaves[number].dtype))
        else:
            for number in sorted(wanted):
                if moving[number]:
                    yield _sent_natively(merge, leaves[number])


def _sent_natively(merge: Merge, leaf: Any) -> Sent:
    size = math.prod(leaf.shape) if merge.kind in ("or", "and") else nbytes(leaf)
    smooth = is_inexact(leaf.dtype)
    return Sent("all-reduce", size, smooth, smooth and merge.kind in ("max", "min"))


def _sent_by_frame(
    merge: Merge, axes: Sequence[Any], leaves: list[Any], moving: list[bool], wanted: set[int]
) -> Iterator[Sent]:
    if not wanted:
        return
    frame = mapped_frame(merge, axes, leaves)
    summary = jax.eval_shape(frame.summary, leaves)
    reference = jax.eval_shape(frame.at, summary)
    addends = jax.eval_shape(frame.express, leaves, reference)
    restored = dependence(frame.restore, reference, addends)
    expressed = dependence(frame.express, leaves, reference)
    located = dependence(frame.at, summary)
    summarised = dependence(frame.summary, leaves)
    of_restore = _sources(restored, wanted)
    needed_addends = {i - len(reference) for i in of_restore if i >= len(reference)}
    needed_reference = {i for i in of_restore if i < len(reference)}
    needed_reference |= {i - len(leaves) for i in _sources(expressed, needed_addends) if i >= len(leaves)}
    summary_moves = [any(hit and moves for hit, moves in zip(row, moving, strict=True)) for row in summarised]
    summed = set[int]()
    for number in sorted(_sources(located, needed_reference)):
        if summary_moves[number]:
            source = passed_through(frame.summary, leaves)[number]
            if merge.monoid.frame is not None and merge.monoid.frame.merge == "sum" and source is not None:
                summed.add(source)
            yield Sent("all-reduce", nbytes(summary[number]), smooth=False)
    for number in sorted(needed_addends):
        row = expressed[number]
        if passed_through(frame.express, leaves, reference)[number] in summed:
            continue  # XLA merges equal sums: a count is a summary and an addend.
        # The reference has been made to vary again before it is used.
        if any(row[len(leaves) :]) or any(h and m for h, m in zip(row[: len(leaves)], moving, strict=True)):
            yield Sent("all-reduce", nbytes(addends[number]), smooth=True)


def sent_by_scan(
    shaped: Shaped, cuts: Cuts, over: str, devices: int, live: Sequence[int]
) -> Iterator[tuple[int, Sent]]:
    """Distance and leaf of the exchanges of a scan's totals, in order."""
    totals, inner = local_state(shaped, cuts, without=over)
    state, _ = local_state(shaped, cuts)
    assert shaped.operation.monoid is not None
    needed = _sources(dependence(lambda leaves: present(shaped, leaves), state), live)
    matrix = dependence(
        lambda a, b: combine_blocks(shaped.operation.monoid, shaped.state_tree, inner, a, b),  # pyright: ignore[reportArgumentType]
        totals,
        totals,
    )
    count, reverse = len(totals), shaped.operation.reverse

    def sides(wanted: set[int]) -> tuple[set[int], set[int]]:
        """Of `earlier (+) state`, what is needed of either."""
        sources = _sources(matrix, wanted)
        left, right = {i for i in sources if i < count}, {i - count for i in sources if i >= count}
        return (right, left) if reverse else (left, right)

    wanted, _ = sides(needed)
    exchanges: list[tuple[int, set[int]]] = []
    for distance in reversed(scan_distances(devices)):
        earlier, own = sides(wanted)
        exchanges.append((distance, earlier))
        wanted = earlier | own
    exchanges.append((1, wanted))
    for distance, moved in reversed(exchanges):
        for leaf in sorted(moved):
            yield distance, Sent("collective-permute", nbytes(totals[leaf]), is_inexact(totals[leaf].dtype))


def scan_distances(devices: int) -> list[int]:
    """The distances of a mesh scan's exchanges after the first one: 1, 2, 4, ... below `devices - 1`."""
    distances: list[int] = []
    distance = 1
    while distance < devices - 1:
        distances.append(distance)
        distance *= 2
    return distances


def moved_axes(axes: tuple[str, ...], distance: int, mesh: MeshShape) -> tuple[str, ...]:
    """The mesh axes along which devices `distance` apart differ."""
    # Two positions differ along an axis where their coordinates do: the part above the axes that lie further in.
    moved: list[str] = []
    for number, axis in enumerate(axes):
        inner, size = mesh.size(axes[number + 1 :]), mesh.size((axis,))
        starts = range(mesh.size(axes) - distance)
        if any(i // inner % size != (i + distance) // inner % size for i in starts):
            moved.append(axis)
    return tuple(moved)


def nbytes(struct: Any) -> int:
    """The bytes of a dense array."""
    return math.prod(struct.shape) * struct.dtype.itemsize


def uneven_folds(shaped: Shaped, cuts: Cuts, mesh: MeshShape) -> list[str]:
    """The cut fold dimensions whose blocks are padded."""
    return [
        dim
        for dim in shaped.signature.fold_dims
        if dim in cuts and cuts[dim].block * mesh.size(cuts[dim].axes) != shaped.sizes[dim]
    ]


def _varying_leaves(shaped: Shaped, operands: Sequence[Any], cuts: Cuts, mesh: MeshShape) -> list[bool]:
    """Which leaves of a device's state can differ from device to device: a count of rows, say, cannot."""
    if uneven_folds(shaped, cuts, mesh):
        return [True] * len(shaped.state)
    blocks = block_structs(shaped.signature, operands, local_sizes(shaped, cuts))
    return [any(row) for row in dependence(lambda leaves: states(shaped, leaves), blocks)]


def _sources(matrix: Matrix, outputs: Any) -> set[int]:
    """The inputs that some of the outputs depend on."""
    return {i for out in outputs for i, depends in enumerate(matrix[out]) if depends}


def _closure(matrix: Matrix, wanted: set[int], count: int) -> set[int]:
    """What is needed of both arguments of a combination repeated any number of times."""
    while True:
        more = wanted | {i % count for i in _sources(matrix, wanted)}
        if more == wanted:
            return wanted
        wanted = more
