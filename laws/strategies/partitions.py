"""Ways to cut a box: exact partitions, of boxes in boxes, with empty pieces among them."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from combinators.arguments import read_flag
from combinators.errors import message, spelt
from combinators.index_space.box import Box
from laws.errors import LawError, whole_number


def partitions(box: Box, most: int = 8, empty: bool = True) -> SearchStrategy[tuple[Box, ...]]:
    """Draw partitions of a box: cut in two along an axis, and the pieces again.

    Args:
      box: what is cut; of any rank, at any origin.
      most: largest number of pieces.
      empty: let pieces be empty, also at both ends.

    Returns:
      A strategy of tuples of boxes that cover `box` exactly; those that are cut along one axis are in order.

    Raises:
      LawError: when `box` is none, `most` is no positive integer, or `empty` no flag.

    Example:
      >>> from hypothesis import find
      >>> find(partitions(Box((0,), (4,))), lambda pieces: len(pieces) == 2 and all(p.size for p in pieces))
      (Box(start=(0,), stop=(1,)), Box(start=(1,), stop=(4,)))
    """
    if not isinstance(cast("Any", box), Box):
        raise LawError(
            message(
                "laws.partitions: only boxes are cut.",
                f"got {type(box).__name__}: {spelt(box)}",
                remedy="Pass a tp.Box(start, stop).",
            )
        )
    return _partition(
        box, whole_number("laws.partitions: most", most, least=1), read_flag(empty, "laws.partitions: empty=", LawError)
    )


@st.composite
def _partition(draw: DrawFn, box: Box, most: int, empty: bool) -> tuple[Box, ...]:
    pieces = [box]
    if box.rank == 0:
        return (box,)
    for _ in range(draw(st.integers(0, most - 1))):
        number = draw(st.integers(0, len(pieces) - 1))
        axis = draw(st.integers(0, box.rank - 1))
        chosen = pieces[number]
        low, high = chosen.start[axis], chosen.stop[axis]
        if not empty and high - low < 2:
            continue
        at = draw(st.integers(low if empty else low + 1, high if empty else high - 1))
        pieces[number : number + 1] = [_with(chosen, axis, low, at), _with(chosen, axis, at, high)]
    return tuple(pieces)


def _with(box: Box, axis: int, low: int, high: int) -> Box:
    start, stop = list(box.start), list(box.stop)
    start[axis], stop[axis] = low, high
    return Box(tuple(start), tuple(stop))
