"""What is left of the cuts of an operation outside of its loops: its end is held to them, field by field.

Lowering reads the cuts of a `Finish` for what the loops inside have done: over which axes devices differ and in which
order, which pieces hold anything, where blocks are padded. None of that is seen in the slots of its operands: a state
has no axis for what it has folded, nor a total for what it has scanned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from combinators.operations.shaped import Shaped
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_time, spread
from tapestry_jax.planning.proof.holdings import NamedCuts
from tapestry_jax.planning.proof.pieces import piece_of
from tapestry_jax.planning.proof.site import Site, check_same, refuse
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Run, Schedule


def check_end(step: Finish, made: NamedCuts, shaped: Shaped, site: Site) -> None:
    """The end of a fold or scan names the cuts of the step that made its states or totals.

    Loops that a dimension is folded over stay; those that it is kept over, or that a scan has run through, are closed.

    Args:
      step: the end.
      made: the cuts of the step in the loops.
      shaped: the operation.
      site: of the end.

    Raises:
      PlanError: naming the first dimension that differs, and its pieces.
    """
    wanted = outside(made, shaped.signature.fold_dims, site)
    check_alike(step.path, "ends", step.cuts, tuple(wanted.items()), shaped, site)


def outside(cuts: NamedCuts, folded: Collection[str], site: Site) -> dict[str, Cut]:
    """The cuts of an operation where some of its loops are closed, all chunks of what it does not fold together."""
    found: dict[str, Cut] = {}
    for dim, cut in cuts:
        closed = () if dim in folded else tuple(axis for axis in in_time(cut.axes) if axis not in site.opened)
        axes = tuple(axis for axis in cut.axes if axis not in closed)
        if axes or cut.window is not None:
            found[dim] = replace(cut, axes=axes, block=cut.block * site.mesh.size(closed))
    return found


def check_alike(path: str, verb: str, cuts: NamedCuts, made: NamedCuts, shaped: Shaped, site: Site) -> None:
    """A step cuts its operation as the one did that made what it is given.

    Args:
      path: of the operation.
      verb: what the step does, such as "ends".
      cuts: of the step.
      made: what these have to be.
      shaped: the operation.
      site: of the step.

    Raises:
      PlanError: naming the first dimension that differs, and its pieces.
    """
    own, wanted = dict(cuts), dict(made)
    if len(own) < len(cuts):
        refuse(path, f"{verb} with a dimension that is cut twice", f"cuts of {', '.join(dim for dim, _ in cuts)}")
    for dim in dict.fromkeys((*own, *wanted)):
        left, right = own.get(dim), wanted.get(dim)
        if left == right:
            continue
        what, size = f"{verb} in other pieces of `{dim}` than it was given", shaped.sizes[dim]
        left_piece, right_piece = (piece_of(cut, size, site.mesh) for cut in (left, right))
        check_same(site, path, what, [left_piece], [right_piece], ("names", "is given"))
        refuse(path, what, f"names {_spelled(left)}", f"is given {_spelled(right)}")


def needed_axes(cuts: NamedCuts, site: Site) -> frozenset[str]:
    """The mesh axes along which the blocks of an operation differ: those of its cuts and rings, and all stages."""
    stages = (axis for _, along in site.staged for axis in along)
    return spread(axis for _, cut in cuts for axis in cut.axes) | frozenset(stages)


def cuts_inside(body: Schedule) -> dict[int, list[NamedCuts]]:
    """For every operation of a loop the cuts of the steps that run it, those of loops inside among them."""
    found: dict[int, list[NamedCuts]] = {}
    for step in body.steps:
        if isinstance(step, Run):
            found.setdefault(step.node, []).append(step.cuts)
        elif isinstance(step, Region):
            for node, cuts in cuts_inside(step.body).items():
                found.setdefault(node, []).extend(cuts)
    return found


def check_one_way(cuts: NamedCuts, others: Iterable[NamedCuts], path: str) -> None:
    """All steps of a loop that run one operation cut it alike: what the loop carries is told by any of them.

    Raises:
      PlanError: where one is cut otherwise.
    """
    for other in others:
        if dict(other) != dict(cuts):
            told = (f"cuts {_listed(each)}" for each in (cuts, other))
            refuse(path, "runs twice in a loop, in other pieces", *told)


def _listed(cuts: NamedCuts) -> str:
    return ", ".join(f"`{dim}` in {_spelled(cut)}" for dim, cut in cuts)


def _spelled(cut: Cut | None) -> str:
    return "all of it" if cut is None else f"blocks of {cut.block} over ({', '.join(cut.axes)})"
