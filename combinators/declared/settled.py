"""Whether a program tells of itself that boxes of it come to the whole, so that nothing need be run.

Of a kernel that adds up rows, or takes each by itself, its program says so. One that takes the first row of its block,
numbers rows, sorts or loops over them may be right as well, or not: such a kernel is run (`boxed`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from combinators.declared.check import Claim, carried, operands_of
from combinators.declared.flow import COUNT, Flow
from combinators.declared.followed import followed
from combinators.declared.parts import SUM, ZERO, parts
from combinators.kernels.jaxprs import programs_inside

# By what a monoid merges single numbers, and how a program reduces by the same.
_REDUCTIONS = {"sum": "reduce_sum", "max": "reduce_max", "min": "reduce_min", "or": "reduce_or", "and": "reduce_and"}


def is_settled(
    claim: Claim, program: Any, results: Sequence[Sequence[str | None]], cut: Collection[str], native: str | None
) -> bool:
    """Whether a program is known to be right on boxes.

    Args:
      claim: what is said of the kernel.
      program: its closed jaxpr.
      results: for every leaf that it gives the dimensions along its axes.
      cut: the dimensions along which boxes are smaller than the whole.
      native: by what its parts are merged; None by what has no name, or where nothing is.
    """
    names = list(_names(program.jaxpr))
    folds = [dim for dim in cut if dim in claim.signature.fold_dims]
    followed_dims = carried(claim, results) | {dim for dim in folds if _stands_alone(claim, dim)}
    # Of windows and composed axes a program has to take the cells that it should, which is not followed.
    if set(cut) - followed_dims:
        return False
    mapped = frozenset(cut) & followed_dims - set(folds)
    if mapped:
        flows = followed(program, list(operands_of(claim, mapped)), mapped)
        # What was taken apart and put together again is in its order, and may have been treated piece by piece.
        if any(not mapped.isdisjoint(flow.lost | flow.pieced) or COUNT in flow.pieced for flow in flows):
            return False
    return all(dim in followed_dims and _adds_up(claim, program, names, dim, native) for dim in folds)


def _adds_up(claim: Claim, program: Any, names: Sequence[str], dim: str, native: str | None) -> bool:
    if native not in _REDUCTIONS or "iota" in names or program.consts:
        return False
    dims = frozenset((dim,))
    operands = [Flow(tags) for tags in operands_of(claim, dims)]
    known = (SUM, ZERO) if native == "sum" else (SUM,)
    found = parts(program, operands, dim, dims, _REDUCTIONS[native], whole=True)
    return all(part.state in known for part in found)


def _stands_alone(claim: Claim, dim: str) -> bool:
    """Whether a dimension is an axis of its own wherever it stands."""
    operands = claim.signature.operands
    return all(axis.name == dim for operand in operands for axis in operand.axes if dim in axis.names)


def _names(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in programs_inside(equation):
            yield from _names(getattr(inner, "jaxpr", inner))
