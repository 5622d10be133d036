"""The layouts in which an operation reads its operands and leaves its results, given where its dimensions go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from combinators.axis import Axis
from combinators.signature import Operand
from tapestry_jax.planning.layout import Cut, Layout

Cuts = dict[str, Cut]


def operand_layout(operand: Operand, sizes: Mapping[str, int], cuts: Cuts) -> Layout:
    """The layout in which an operation reads an operand."""
    return Layout(tuple(_axis_cut(axis, sizes, cuts) for axis in operand.axes))


def result_layout(axes: tuple[Axis, ...], sizes: Mapping[str, int], cuts: Cuts) -> Layout:
    """The layout in which an operation leaves a result."""
    return Layout(tuple(_axis_cut(axis, sizes, cuts) for axis in axes))


def _axis_cut(axis: Axis, sizes: Mapping[str, int], cuts: Cuts) -> Cut | None:
    # A window reads beyond its block: the tensor comes whole, and the operation slices what it reads.
    if axis.is_window or not axis.terms or axis.terms[0].name not in cuts:
        return None
    cut = cuts[axis.terms[0].name]
    inner = 1
    for term in axis.terms[1:]:
        inner *= sizes[term.name]
    return replace(cut, block=cut.block * inner)
