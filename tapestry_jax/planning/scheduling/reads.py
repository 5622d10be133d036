"""The layouts in which an operation reads its operands and leaves its results, given where its dimensions go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from combinators.index_space.axis import Axis, Term
from combinators.index_space.extent import axis_extent
from combinators.operations.execute import axis_modes
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.geometry.layout import Cut, Layout, Window
from tapestry_jax.planning.geometry.time_axis import ring_of

Cuts = dict[str, Cut]


def operand_layouts(shaped: Shaped, cuts: Cuts) -> list[Layout]:
    """The layouts in which an operation reads its array operands; equal layers that are cut alike share them."""
    key = "reads", tuple(cuts.items())
    found = shaped.known.get(key)
    if found is None:
        found = shaped.known[key] = tuple(_operand_layouts(shaped, cuts))
    return list(found)


def _operand_layouts(shaped: Shaped, cuts: Cuts) -> Iterator[Layout]:
    for operand, modes in zip(shaped.signature.operands, axis_modes(shaped), strict=True):
        if operand.coordinate is None:
            axes = zip(operand.axes, modes, strict=True)
            yield Layout(tuple(_axis_cut(axis, mode, shaped.sizes, cuts) for axis, mode in axes))


def result_layout(axes: tuple[Axis, ...], sizes: Mapping[str, int], cuts: Cuts) -> Layout:
    """The layout in which an operation leaves a result."""
    return Layout(tuple(_axis_cut(axis, "valid", sizes, cuts) for axis in axes))


def overlapping_term(axis: Axis, cuts: Mapping[str, Cut]) -> Term | None:
    """The one cut dimension of a window, whose pieces overlap their neighbours'.

    None where several dimensions are cut, or one runs backwards or goes round a ring: the axis comes whole, and the
    operation slices it.
    """
    terms = [term for term in axis.terms if term.name in cuts]
    if (
        not axis.is_window
        or len(terms) != 1
        or terms[0].coefficient < 0
        or any(ring_of(name) is not None for name in cuts[terms[0].name].axes)
    ):
        return None
    return terms[0]


def _axis_cut(axis: Axis, mode: str, sizes: Mapping[str, int], cuts: Cuts) -> Cut | None:
    if axis.is_window:
        term = overlapping_term(axis, cuts)
        return None if term is None else _window_cut(axis, term, mode, sizes, cuts[term.name])
    if not axis.terms or axis.terms[0].name not in cuts:
        return None
    cut = cuts[axis.terms[0].name]
    inner = 1
    for term in axis.terms[1:]:
        inner *= sizes[term.name]
    window = cut.window
    if window is not None:
        window = replace(window, width=inner, step=inner)
    return Cut(cut.axes, cut.block * inner, window, cut.striped)


def _window_cut(axis: Axis, term: Term, mode: str, sizes: Mapping[str, int], cut: Cut) -> Cut:
    low, high = axis_extent(axis, {**sizes, term.name: 1})
    step = term.coefficient
    if cut.window is not None:
        return Cut(cut.axes, cut.block * step, replace(cut.window, offset=low, width=high - low, step=step, mode=mode))
    return Cut(cut.axes, cut.block * step, Window(low, high - low, step, sizes[term.name], mode))


def fold_axes(shaped: Shaped, cuts: Mapping[str, Cut]) -> tuple[str, ...]:
    """Mesh axes and loops over which an operation folds, dimension by dimension."""
    return tuple(axis for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes)


def folds_nothing(shaped: Shaped) -> bool:
    """Whether an operation folds an empty dimension: its result is the identity, whatever its operands hold."""
    return any(shaped.sizes[dim] == 0 for dim in shaped.signature.fold_dims)


def all_axes(cuts: Iterable[Cut]) -> tuple[str, ...]:
    """All mesh axes and loops of some cuts."""
    return tuple(axis for cut in cuts for axis in cut.axes)
