"""Merging the states of folds: of every piece once, of the same piece of all else, and in the order that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combinators.operations.shaped import Shaped
from tapestry_jax.planning.folding.merges import is_sum
from tapestry_jax.planning.geometry.time_axis import in_space, in_time, label, ring_of
from tapestry_jax.planning.proof.holdings import State
from tapestry_jax.planning.proof.needs import Cuts
from tapestry_jax.planning.proof.pieces import Piece, box_of, piece_of, spelled
from tapestry_jax.planning.proof.site import Site, refuse
from tapestry_jax.planning.scheduling.schedule import Scatter


def folded_axes(shaped: Shaped, cuts: Cuts, site: Site) -> tuple[str, ...]:
    """The mesh axes and loops over which a fold is in pieces, the outermost of each dimension first."""
    axes = (axis for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes)
    return tuple(axis for axis in axes if site.mesh.size((axis,)) > 1)


def check_fold(shaped: Shaped, cuts: Cuts, path: str) -> None:
    """The pieces of the folded dimensions are disjoint, and in order where the monoid does not commute.

    Raises:
      PlanError: naming the dimension.
    """
    monoid = shaped.operation.monoid
    for place, dim in enumerate(shaped.signature.fold_dims):
        cut = cuts.get(dim)
        if cut is None:
            continue
        if cut.window is not None:
            refuse(path, f"folds indices of `{dim}` twice", f"a device takes {cut.extent} indices of its {cut.block}")
        if monoid is None or monoid.commutative:
            continue
        if place or cut.striped or any(ring_of(axis) is not None for axis in cut.axes):
            how = "in stripes" if cut.striped else "inside of another fold" if place else "in a ring"
            refuse(path, f"merges pieces of `{dim}` {how}, out of their order, which its monoid needs")


def kept_pieces(shaped: Shaped, cuts: Cuts, site: Site, but: Sequence[str]) -> list[Piece]:
    """The pieces of all dimensions but some."""
    return [piece_of(cut, shaped.sizes[dim], site.mesh) for dim, cut in cuts.items() if dim not in but]


def added_up(state: State, loop: str, shaped: Shaped, site: Site, path: str) -> State:
    """A state after a loop that adds it up.

    Raises:
      PlanError: where it is not in pieces over the loop, or not of neighbours while the order matters.
    """
    monoid = shaped.operation.monoid
    if loop not in state.left:
        refuse(path, f"adds up the same state in every turn of {label(loop)}", two_boxes(state, loop, site))
    if monoid is not None and not monoid.commutative and state.left[-1] != loop:
        refuse(path, f"adds up pieces in {label(loop)} that are no neighbours", two_boxes(state, loop, site))
    return replace(state, left=tuple(axis for axis in state.left if axis != loop))


def check_finished(state: State, merged: tuple[str, ...], shaped: Shaped, site: Site, path: str) -> None:
    """What is merged over mesh axes is in pieces over these axes, and over nothing else.

    Raises:
      PlanError: for an axis too many or one too few, or an order that the monoid does not allow.
    """
    monoid, few = shaped.operation.monoid, in_time(state.left)
    extra = next((axis for axis in merged if axis not in state.left), None)
    if extra is not None:
        what = f"merges states over `{extra}`, whose devices hold the same state"
        refuse(path, what, two_boxes(state, extra, site))
    if few:
        what = f"presents states that the turns of {label(few[0])} have not added up"
        refuse(path, what, two_boxes(state, few[0], site))
    missing = next((axis for axis in state.left if axis not in merged), None)
    if missing is not None:
        what = f"does not merge states over `{missing}`, whose devices hold different ones"
        refuse(path, what, two_boxes(state, missing, site))
    if monoid is not None and not monoid.commutative and merged != state.left:
        what = f"merges states in the order of ({', '.join(merged)}), which its monoid does not allow"
        refuse(path, what, f"their order is ({', '.join(state.left)})", two_boxes(state, merged[-1], site))


def two_boxes(state: State, axis: str, site: Site) -> str:
    """What the first two positions along an axis have folded."""
    first, second = (box_of(state.folded, {axis: number}, site.mesh) for number in (0, 1))
    return f"leaf {state.leaf} of the state folds {first} on {spelled({axis: 0})}, {second} on {spelled({axis: 1})}"


def scattered(
    made: list[Piece], scatter: Scatter, merged: tuple[str, ...], shaped: Shaped, site: Site, path: str
) -> None:
    """What is left of a sum on each device: its block of one axis, in place of all of it.

    Raises:
      PlanError: where the fold is no sum, or the axis is not whole and shared out among the devices that are merged.
    """
    cut, size = scatter.cut, made[scatter.axis].extent
    if not is_sum(shaped) or len(shaped.state) != 1 or in_space(cut.axes) != merged or in_time(cut.axes):
        refuse(path, f"scatters what is no sum over ({', '.join(cut.axes)})")
    if scatter.axis < 0 or not made[scatter.axis].is_whole or cut.window is not None or cut.striped:
        refuse(path, f"scatters axis {scatter.axis}, which is not whole before it is")
    if cut.block * site.mesh.size(cut.axes) < size:
        refuse(path, f"scatters {size} cells in blocks of {cut.block}, which are not enough")
    made[scatter.axis] = piece_of(cut, size, site.mesh)
