"""How the partial states of a fold merge over a mesh: natively, through a frame, or by an ordered exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax

from combinators.frozen import dataclass
from combinators.merging.blocks import Axes, combine_blocks, map_cells, shared_axes
from combinators.merging.leafwise import Native
from combinators.merging.monoid import Monoid
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.derivatives.dependence import Matrix, dependence
from tapestry_jax.planning.geometry.layout import Cut

Kind = Literal["sum", "max", "min", "or", "and", "frame", "ordered"]
Struct = jax.ShapeDtypeStruct
_OF_TRUTHS: dict[Native, Native] = {"sum": "or", "max": "or", "min": "and"}


@dataclass(frozen=True)
class Merge:
    """One way to merge some leaves of a state.

    Attributes:
      kind: a native collective, `frame` (two native ones), or `ordered` (`combine` alone, in mesh order).
      monoid: of these leaves.
      tree: how they make a state.
      leaves: their positions among the leaves of the whole state.
    """

    kind: Kind
    monoid: Monoid
    tree: Any
    leaves: tuple[int, ...]


def merges(shaped: Shaped) -> tuple[Merge, ...]:
    """The merges that make up one of an operation's monoid; the parts of a product merge each in its own way."""
    assert shaped.operation.monoid is not None
    return tuple(_merges(shaped.operation.monoid, shaped.state_tree, 0, shaped.state))


def is_sum(shaped: Shaped) -> bool:
    """Whether an operation folds or scans by sums alone, over numbers."""
    monoid = shaped.operation.monoid
    return monoid is not None and monoid.native == "sum" and not any(leaf.dtype == bool for leaf in shaped.state)


def _merges(monoid: Monoid, tree: Any, start: int, state: Sequence[Any]) -> list[Merge]:
    leaves = tuple(range(start, start + tree.num_leaves))
    if monoid.native is not None:
        return _natively(monoid.native, monoid, tree, leaves, state)
    if not monoid.parts:
        return [Merge("frame" if monoid.frame is not None else "ordered", monoid, tree, leaves)]
    # The children of a dictionary come in the order of their keys.
    order = range(len(monoid.parts))
    if monoid.keys is not None:
        keys = monoid.keys
        order = sorted(order, key=lambda i: keys[i])
    found: list[Merge] = []
    for part, child in zip([monoid.parts[i] for i in order], tree.children(), strict=True):
        found.extend(_merges(part, child, start, state))
        start += child.num_leaves
    return found


def _natively(kind: Native, monoid: Monoid, tree: Any, leaves: tuple[int, ...], state: Sequence[Any]) -> list[Merge]:
    """Truths are added as NumPy adds them, by `or`; a collective would count them."""
    kinds: list[Kind] = [_OF_TRUTHS.get(kind, kind) if state[leaf].dtype == bool else kind for leaf in leaves]
    if kinds == [kind] * len(leaves):
        return [Merge(kind, monoid, tree, leaves)]
    one = jax.tree.structure((0,))
    return [Merge(each, monoid, one, (leaf,)) for each, leaf in zip(kinds, leaves, strict=True)]


def local_sizes(shaped: Shaped, cuts: dict[str, Cut]) -> dict[str, int]:
    """The sizes of the index box of one device."""
    return {dim: cuts[dim].extent if dim in cuts else size for dim, size in shaped.sizes.items()}


def local_state(shaped: Shaped, cuts: dict[str, Cut], without: str | None = None) -> tuple[list[Struct], list[Axes]]:
    """Types and axes of the leaves of one device's state; `without` leaves out a dimension (totals of a scan)."""
    sizes = local_sizes(shaped, cuts)
    structs: list[Struct] = []
    carrier: list[Axes] = []
    for leaf, axes in zip(shaped.state, shaped.carrier, strict=True):
        kept = [(axis, sizes.get(axis, size)) for axis, size in zip(axes, leaf.shape, strict=True) if axis != without]
        structs.append(Struct(tuple(size for _, size in kept), leaf.dtype))
        carrier.append(tuple(axis for axis, _ in kept))
    return structs, carrier


def combined_from(merge: Merge, carrier: Sequence[Axes], state: Sequence[Any]) -> Matrix:
    """For every leaf of a combination, on which leaves of the earlier and of the later state it depends."""
    structs = [Struct(leaf.shape, leaf.dtype) for leaf in state]
    return dependence(lambda a, b: combine_blocks(merge.monoid, merge.tree, carrier, a, b), structs, structs)


def moving_leaves(merge: Merge, carrier: Sequence[Axes], state: Sequence[Any], varies: Sequence[bool]) -> list[bool]:
    """Which leaves of a merged state differ from device to device, given which `varies` before."""
    moving = list(varies)
    if all(moving):
        return moving
    matrix = combined_from(merge, carrier, state)
    while (more := merged_once(matrix, moving)) != moving:
        moving = more
    return moving


def merged_once(matrix: Matrix, moving: Sequence[bool]) -> list[bool]:
    """Which leaves differ after one more merge."""
    both = [*moving, *moving]
    return [
        moves or any(hit and moved for hit, moved in zip(row, both, strict=True))
        for moves, row in zip(moving, matrix, strict=True)
    ]


def mapped_frame(merge: Merge, carrier: Sequence[Axes], state: Sequence[Any]) -> MappedFrame:
    """The parts of a frame, mapped from a cell to the block `state` (arrays or their types)."""
    frame = merge.monoid.frame
    assert frame is not None
    shared = shared_axes(carrier)
    cells = [
        Struct(tuple(s for s, a in zip(leaf.shape, axes, strict=True) if a not in shared), leaf.dtype)
        for leaf, axes in zip(state, carrier, strict=True)
    ]
    cell = jax.tree.unflatten(merge.tree, cells)
    summary = jax.eval_shape(frame.summary, cell)
    reference = jax.eval_shape(frame.at, summary)
    addends = jax.eval_shape(frame.express, cell, reference)
    trees = {name: jax.tree.structure(value) for name, value in (("s", summary), ("f", reference), ("a", addends))}
    axes = {
        name: [shared + tuple(f"~{i}" for i in range(leaf.ndim)) for leaf in jax.tree.leaves(value)]
        for name, value in (("s", summary), ("f", reference), ("a", addends))
    }

    def flat(function: Any, *sources: Any) -> Any:
        def cellwise(*leaves: list[Any]) -> list[Any]:
            return jax.tree.leaves(function(*map(jax.tree.unflatten, sources, leaves)))

        return cellwise

    return MappedFrame(
        map_cells(flat(frame.summary, merge.tree), [carrier], axes["s"], shared),
        map_cells(flat(frame.at, trees["s"]), [axes["s"]], axes["f"], shared),
        map_cells(flat(frame.express, merge.tree, trees["f"]), [carrier, axes["f"]], axes["a"], shared),
        map_cells(flat(frame.restore, trees["f"], trees["a"]), [axes["f"], axes["a"]], carrier, shared),
    )


@dataclass(frozen=True)
class MappedFrame:
    """A frame on blocks: every part takes and returns flat lists of leaves."""

    summary: Callable[[list[Any]], list[Any]]
    at: Callable[[list[Any]], list[Any]]
    express: Callable[[list[Any], list[Any]], list[Any]]
    restore: Callable[[list[Any], list[Any]], list[Any]]
