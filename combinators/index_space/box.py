"""Boxes of integer points: half-open, at any origin, of any size.

A box is what a piece of an index space, or of a tensor, is. Coordinates are Python integers, so that nothing
overflows past 2**31, and origins may be negative, so that a halo or a reversed axis needs no special case.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from combinators.arguments import is_whole, read_integer
from combinators.errors import SignatureError, message, spelt

Point = tuple[int, ...]
_MOST_PIECES = 2**24  # of one split: they are written out


@dataclass(frozen=True, slots=True)
class Box:
    """The points `p` with `start[i] <= p[i] < stop[i]` on every axis `i`.

    A `stop` below its `start` is raised to it, so that an empty axis has size 0 in every box. A box that is empty on
    one axis keeps its extent on the others, as an array of shape `(3, 0)` does. A box of rank 0 holds the one point
    `()`.

    Args:
      start: first coordinate on every axis; any integers.
      stop: one past the last coordinate on every axis.

    Raises:
      SignatureError: when the ranks differ, or a coordinate is no integer.
    """

    start: Point
    stop: Point

    def __post_init__(self) -> None:
        start = integers(self.start, "start of a box")
        stop = integers(self.stop, "stop of a box")
        if len(start) != len(stop):
            raise SignatureError(
                message(
                    "a box needs as many stops as starts.",
                    f"start has rank {len(start)}: {start}",
                    f"stop  has rank {len(stop)}: {stop}",
                    remedy="Give both one coordinate per axis.",
                )
            )
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "stop", tuple(max(low, high) for low, high in zip(start, stop, strict=True)))

    @staticmethod
    def of_shape(shape: Sequence[int], start: Sequence[int] | None = None) -> Box:
        """The box of `shape` at the origin, or at `start`."""
        sizes = integers(shape, "shape of a box")
        origin = (0,) * len(sizes) if start is None else integers(start, "start of a box")
        _same_rank("make a box of a shape", len(sizes), "start", len(origin))
        return Box(origin, tuple(low + size for low, size in zip(origin, sizes, strict=True)))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.start)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of coordinates on every axis; never negative."""
        return tuple(high - low for low, high in zip(self.start, self.stop, strict=True))

    @property
    def size(self) -> int:
        """Number of points; 1 for rank 0."""
        return math.prod(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether no point lies in the box."""
        return any(low == high for low, high in zip(self.start, self.stop, strict=True))

    def contains(self, item: Box | Sequence[int]) -> bool:
        """Whether a point, or every point of a box, lies in this box; an empty box lies in every box of its rank.

        Raises:
          SignatureError: when the ranks differ.
        """
        if isinstance(item, Box):
            self._check_rank("look for a box", item)
            return item.is_empty or all(
                low <= inner_low and inner_high <= high
                for low, high, inner_low, inner_high in zip(self.start, self.stop, item.start, item.stop, strict=True)
            )
        item = integers(item, "point")
        _same_rank("look for a point in a box", self.rank, "point", len(item))
        return all(low <= at < high for low, at, high in zip(self.start, item, self.stop, strict=True))

    def translate(self, by: Sequence[int]) -> Box:
        """The box moved by the vector `by`."""
        vector = integers(by, "translation of a box")
        _same_rank("translate a box", self.rank, "vector", len(vector))
        return Box(
            tuple(low + step for low, step in zip(self.start, vector, strict=True)),
            tuple(high + step for high, step in zip(self.stop, vector, strict=True)),
        )

    def intersect(self, other: Box) -> Box:
        """The points of both boxes; empty where they do not meet."""
        self._check_rank("intersect boxes", other)
        return Box(tuple(map(max, self.start, other.start)), tuple(map(min, self.stop, other.stop)))

    def bounding(self, other: Box) -> Box:
        """The smallest box that contains both; an empty box adds nothing to another."""
        self._check_rank("bound boxes", other)
        if other.is_empty:
            return self
        if self.is_empty:
            return other
        return Box(tuple(map(min, self.start, other.start)), tuple(map(max, self.stop, other.stop)))

    def product(self, other: Box) -> Box:
        """The Cartesian product: the axes of this box, then those of `other`."""
        _check_box("multiply boxes", other)
        return Box(self.start + other.start, self.stop + other.stop)

    def split(
        self,
        axis: int,
        parts: int | None = None,
        *,
        at: int | Sequence[int] | None = None,
        size: int | None = None,
    ) -> tuple[Box, ...]:
        """Cut the box along one axis into boxes that cover it exactly, in order.

        Args:
          axis: the axis to cut.
          parts: number of pieces; their sizes differ by at most one, the larger come first. Pieces are empty only where
            there are more of them than coordinates.
          at: coordinate, or ascending coordinates, where a new piece begins.
          size: coordinates per piece; the last piece may be smaller.

        Returns:
          The pieces. An empty axis cut by `size` gives one empty piece.

        Raises:
          SignatureError: when the axis does not exist, when not exactly one of `parts`, `at` and `size` is given, or
            when it is out of range.
        """
        axis = read_integer(axis, "axis of a split", SignatureError)
        if not 0 <= axis < self.rank:
            raise SignatureError(
                message(
                    f"cannot split axis {axis} of the box {self}.",
                    f"its axes are 0 to {self.rank - 1}" if self.rank else "it has no axes",
                    remedy="Name an axis of the box.",
                )
            )
        low, high = self.start[axis], self.stop[axis]
        cuts = _cuts(low, high, parts, at, size, f"cannot split axis {axis} of the box {self}.")
        edges = (low, *cuts, high)
        return tuple(self._with_axis(axis, *edge) for edge in itertools.pairwise(edges))

    def grid(self, parts: Sequence[int]) -> tuple[Box, ...]:
        """Cut every axis `i` into `parts[i]` pieces; the pieces come in row-major order.

        Raises:
          SignatureError: when `parts` does not give one positive number per axis.
        """
        counts = integers(parts, "parts of a grid")
        _same_rank("cut a box into a grid", self.rank, "parts", len(counts))
        pieces: tuple[Box, ...] = (self,)
        for axis, count in enumerate(counts):
            pieces = tuple(piece for whole in pieces for piece in whole.split(axis, count))
        return pieces

    def points(self) -> Iterator[Point]:
        """Every point, the last axis fastest; lazy, so that a large box can be sampled from its front."""
        if self.is_empty:
            return
        point = list(self.start)
        while True:
            yield tuple(point)
            axis = self.rank - 1
            while axis >= 0 and point[axis] + 1 == self.stop[axis]:
                point[axis] = self.start[axis]
                axis -= 1
            if axis < 0:
                return
            point[axis] += 1

    def slices(self, whole: Box) -> tuple[slice, ...]:
        """The slices that select this box from an array that holds `whole`.

        Raises:
          SignatureError: when this box does not lie in `whole`; a negative slice would silently count from the end.
        """
        _check_box("select a box", whole)
        if not whole.contains(self):
            raise SignatureError(
                message(
                    f"cannot select the box {self}.",
                    f"the array holds {whole}",
                    remedy="Intersect the box with what the array holds.",
                )
            )
        if self.is_empty:
            # An empty box may lie anywhere; only its extents are meaningful.
            return tuple(slice(0, size) for size in self.intersect(whole).shape)
        return tuple(
            slice(low - origin, high - origin)
            for low, high, origin in zip(self.start, self.stop, whole.start, strict=True)
        )

    def __str__(self) -> str:
        return "[" + ", ".join(f"{low}:{high}" for low, high in zip(self.start, self.stop, strict=True)) + "]"

    def _with_axis(self, axis: int, low: int, high: int) -> Box:
        return Box(
            (*self.start[:axis], low, *self.start[axis + 1 :]),
            (*self.stop[:axis], high, *self.stop[axis + 1 :]),
        )

    def _check_rank(self, doing: str, other: Any) -> None:
        _check_box(doing, other)
        if self.rank != other.rank:
            raise SignatureError(
                message(
                    f"cannot {doing} of different rank.",
                    f"{self} has rank {self.rank}",
                    f"{other} has rank {other.rank}",
                    remedy="Give both boxes the same axes.",
                )
            )


def integers(values: Iterable[int], what: str) -> tuple[int, ...]:
    """Python integers from any integers, NumPy's too, which would overflow.

    Raises:
      SignatureError: when a value is no integer; `what` says of what.
    """
    given: object = values
    # Unordered, or of characters: no coordinates, although some can be counted through.
    try:
        listed = None if isinstance(given, str | bytes | Mapping | Set) else tuple(values)
        if listed is not None and not any(isinstance(value, bool | np.bool_) for value in listed):
            return tuple(int(operator.index(value)) for value in listed)
    except TypeError:
        pass
    raise SignatureError(
        message(
            f"the {what} must be integers.", f"got {spelt(given)}", remedy="Give a tuple of integers, one per axis."
        )
    )


def _check_box(doing: str, other: Any) -> None:
    if not isinstance(other, Box):
        details = ("expected a box", f"got {type(other).__name__}: {spelt(other)}")
        raise SignatureError(message(f"cannot {doing}.", *details, remedy="Pass tp.Box(start, stop)."))


def _same_rank(doing: str, rank: int, what: str, got: int) -> None:
    if rank != got:
        raise SignatureError(
            message(
                f"cannot {doing}.",
                f"expected rank {rank}",
                f"got a {what} of rank {got}",
                remedy="Give one integer per axis.",
            )
        )


def _cuts(
    low: int, high: int, parts: int | None, at: int | Sequence[int] | None, size: int | None, headline: str
) -> tuple[int, ...]:
    """The interior edges of a split of the range `low:high`."""
    if (parts is not None) + (at is not None) + (size is not None) != 1:
        raise SignatureError(
            message(
                headline, f"got parts={parts}, at={at}, size={size}", remedy="Give exactly one of parts, at and size."
            )
        )
    if at is not None:
        cuts = (int(at),) if is_whole(at) else integers(at, "cuts of a box")  # pyright: ignore[reportArgumentType]
        edges = (low, *cuts, high)
        if any(left > right for left, right in itertools.pairwise(edges)):
            raise SignatureError(
                message(headline, f"got at={at}", remedy=f"Give ascending coordinates from {low} to {high}.")
            )
        return cuts
    count = parts if parts is not None else size
    is_count = count is not None and is_whole(count) and count >= 1
    if count is None or not is_count or (parts if parts is not None else (high - low) // count) > _MOST_PIECES:
        expected = f"expected a positive number, and at most {_MOST_PIECES} pieces"
        raise SignatureError(
            message(
                headline,
                expected,
                f"got parts={spelt(parts, 40)}, size={spelt(size, 40)}",
                remedy="Give another number.",
            )
        )
    if parts is not None:
        share, larger = divmod(high - low, parts)
        return tuple(low + share * index + min(index, larger) for index in range(1, parts))
    return tuple(range(low + count, high, count))
