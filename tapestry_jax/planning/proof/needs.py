"""What an operation reads of its operands, and what it makes, given how its dimensions are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from combinators.index_space.axis import Axis, Term
from combinators.operations.execute import axis_modes
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import ring_of
from tapestry_jax.planning.proof.pieces import Piece, digits_of, piece_of, whole
from tapestry_jax.planning.proof.site import Site, refuse

Cuts = Mapping[str, Cut]


def needed_pieces(
    shaped: Shaped, cuts: Cuts, shapes: Sequence[Sequence[int]], site: Site, path: str
) -> list[list[Piece]]:
    """For every array operand, what each device reads of it: exactly what its kernel takes.

    Args:
      shaped: the operation.
      cuts: of its dimensions.
      shapes: of the operands, as a whole.
      site: of the step.
      path: of the operation.

    Raises:
      PlanError: for a dimension that cannot be cut as it is.
    """
    found: list[list[Piece]] = []
    remaining = iter(shapes)
    for operand, modes in zip(shaped.signature.operands, axis_modes(shaped), strict=True):
        if operand.coordinate is not None:
            _check_coordinate(operand.coordinate, cuts, path)
            continue
        axes = zip(operand.axes, modes, next(remaining), strict=True)
        found.append([_of_axis(axis, mode, size, shaped.sizes, cuts, site, path) for axis, mode, size in axes])
    return found


def made_pieces(
    axes: Sequence[Axis], shape: Sequence[int], sizes: Mapping[str, int], cuts: Cuts, site: Site, path: str
) -> list[Piece]:
    """What each device makes of a result."""
    listed = zip(axes, shape, strict=True)
    return [_of_axis(axis, "valid", size, sizes, cuts, site, path) for axis, size in listed]


def state_pieces(names: Sequence[str], shape: Sequence[int], cuts: Cuts, mesh: MeshShape) -> list[Piece]:
    """What each device makes of a leaf of a state, whose axes are dimensions."""
    return [piece_of(cuts.get(name), size, mesh) for name, size in zip(names, shape, strict=True)]


def _check_coordinate(dim: str, cuts: Cuts, path: str) -> None:
    cut = cuts.get(dim)
    if cut is not None and cut.window is not None and cut.window.wraps:
        refuse(path, f"reads coordinates of `{dim}` around its ends, where they say nothing")


def _of_axis(axis: Axis, mode: str, size: int, sizes: Mapping[str, int], cuts: Cuts, site: Site, path: str) -> Piece:
    cut_terms = [term for term in axis.terms if term.name in cuts]
    if not cut_terms:
        return whole(size)
    if axis.is_window:
        return _of_window(axis, cut_terms, mode, size, sizes, cuts, site, path)
    first, inner = axis.terms[0], 1
    for term in axis.terms[1:]:
        inner *= sizes[term.name]
    cut = cuts[first.name] if cut_terms == [first] else None
    if cut is None:
        refuse(path, f"cuts `{cut_terms[-1].name}`, which is inner in `{axis}`")
    if cut.striped and len(axis.terms) > 1:
        refuse(path, f"takes stripes of `{first.name}`, which is a part of `{axis}`")
    own = piece_of(cut, sizes[first.name], site.mesh)
    window = own.window
    if window is not None:
        window = Window(0, inner, inner, window.count, window.mode, window.before, window.after, window.wraps)
    steps = tuple((digit, step * inner) for digit, step in own.digits)
    return Piece(steps, own.low * inner, own.extent * inner, own.deal, window)


def _of_window(
    axis: Axis,
    cut_terms: Sequence[Term],
    mode: str,
    size: int,
    sizes: Mapping[str, int],
    cuts: Cuts,
    site: Site,
    path: str,
) -> Piece:
    """The cells that the indices of a piece read: the first index begins them, the last one ends them."""
    for term in cut_terms:
        if cuts[term.name].striped:
            refuse(path, f"takes stripes of `{term.name}`, of which `{axis}` reads neighbours")
    goes_round = any(ring_of(digit) is not None for digit in cuts[cut_terms[0].name].axes)
    if len(cut_terms) > 1 or cut_terms[0].coefficient < 0 or goes_round:
        # The axis is whole, and each device slices it where its blocks begin.
        for term in cut_terms:
            if cuts[term.name].window is not None:
                refuse(path, f"computes indices of `{term.name}` twice, but slices `{axis}` by its blocks")
        return whole(size)
    (term,) = cut_terms
    cut, step = cuts[term.name], term.coefficient
    low, high = _cells_of_first_index(axis, term, sizes)
    before, after, wraps = (cut.window.before, cut.window.after, cut.window.wraps) if cut.window else (0, 0, False)
    indices = cut.block + before + after
    extent = (indices - 1) * step + high - low if cut.block and high > low else 0
    window = Window(low, high - low, step, sizes[term.name], mode, before, after, wraps)
    return Piece(digits_of(cut.axes, cut.block * step, site.mesh), low - before * step, extent, 0, window)


def _cells_of_first_index(axis: Axis, of: Term, sizes: Mapping[str, int]) -> tuple[int, int]:
    low = high = axis.offset
    for term in axis.terms:
        last = 0 if term is of else sizes[term.name] - 1
        if last < 0:
            return 0, 0
        low, high = min(low, low + last * term.coefficient), max(high, high + last * term.coefficient)
    return low, high + 1
