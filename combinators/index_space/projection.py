"""Projections: the affine maps that say which box of a tensor a box of the index space touches.

Row `j` of a projection belongs to tensor axis `j`. It reads a linear form of the index point, so the extremes over a
box are found coefficient by coefficient: a positive one is largest at the last coordinate, a negative one at the first.
The two corners of the box alone are wrong as soon as signs mix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from combinators.errors import SignatureError, message
from combinators.index_space.box import Box, Point, integers

if TYPE_CHECKING:
    from combinators.index_space.axis import Axis

_NODES = 4_000  # of a collision search; signatures need tens, hostile knapsacks would need more than there are
_PASSES = 32  # of bound tightening a node; stopping early only prunes less


@dataclass(frozen=True, slots=True)
class Projection:
    """A point `p` of the index space touches the box `[A p + b, A p + b + shape)` of a tensor.

    Args:
      matrix: `A`; one row per tensor axis, one column per index dimension.
      offset: `b`; one integer per tensor axis.
      shape: size of the window that one point touches; one non-negative integer per tensor axis.
      index_rank: number of index dimensions. Taken from the matrix where it has rows, so only a tensor without axes
        needs it.

    Raises:
      SignatureError: when the sizes do not fit, or an entry is no integer, or a window is negative.
    """

    matrix: tuple[tuple[int, ...], ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    index_rank: int = 0

    def __post_init__(self) -> None:
        matrix = tuple(integers(row, "matrix of a projection") for row in self.matrix)
        offset = integers(self.offset, "offset of a projection")
        shape = integers(self.shape, "shape of a projection")
        if not (len(matrix) == len(offset) == len(shape)) or len({len(row) for row in matrix}) > 1:
            raise SignatureError(
                message(
                    "a projection needs a row, an offset and a window size per tensor axis.",
                    f"matrix has {len(matrix)} rows of lengths {[len(row) for row in matrix]}",
                    f"offset has {len(offset)} entries, shape {len(shape)}",
                    remedy="Give every tensor axis one of each, and every row one entry per index dimension.",
                )
            )
        if min(shape, default=0) < 0:
            raise SignatureError(
                message(
                    "a projection cannot touch a window of negative size.",
                    f"got shape {shape}",
                    remedy="Use 0 or more.",
                )
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "shape", shape)
        if matrix:
            object.__setattr__(self, "index_rank", len(matrix[0]))

    @staticmethod
    def from_axes(axes: Sequence[Axis], dims: Sequence[str], sizes: Mapping[str, int]) -> Projection:
        """The projection of an operand of a signature.

        A name of `dims` becomes a column. A whole term, or a name that `dims` lacks, is read in full: it widens the
        window, and shifts its start where its coefficient is negative. A composite axis `(h d)` has row-major strides.

        Args:
          axes: the operand's axes, ellipsis expanded.
          dims: the names of the index dimensions, in the order of the index space.
          sizes: sizes of the names that are read in full, and of all but the outermost of a composite axis.

        Returns:
          The projection from the space of `dims`.

        Raises:
          SignatureError: when a size that is needed is missing.
        """
        rows = [_row(axis, dims, sizes) for axis in axes]
        return Projection(
            tuple(matrix for matrix, _, _ in rows),
            tuple(offset for _, offset, _ in rows),
            tuple(window for _, _, window in rows),
            len(dims),
        )

    @property
    def tensor_rank(self) -> int:
        """Number of tensor axes."""
        return len(self.offset)

    def project_point(self, point: Sequence[int]) -> Box:
        """The box of the tensor that one point of the index space touches."""
        return self.project_box(Box.of_shape((1,) * len(point), point))

    def project_box(self, box: Box) -> Box:
        """The smallest box of the tensor that holds all that the points of `box` touch.

        Where strides leave cells between the windows unread, they are inside the box too; on every axis its first and
        last coordinate are touched.

        Args:
          box: a box of the index space.

        Returns:
          The bounding box. An empty box touches nothing: it gives a box of size 0 on every tensor axis; a tensor
          without axes has one cell in any case, since a box of rank 0 cannot be empty.

        Raises:
          SignatureError: when the rank of the box is not `index_rank`.
        """
        if box.rank != self.index_rank:
            raise SignatureError(
                message(
                    f"cannot project the box {box}.",
                    f"the projection takes rank {self.index_rank}",
                    f"the box has rank {box.rank}",
                    remedy="Give one range per index dimension.",
                )
            )
        origin = self._origin(box.start)
        if box.is_empty or 0 in self.shape:
            return Box(origin, origin)
        lows, highs = zip(*(_extremes(row, box.shape) for row in self.matrix), strict=True) if self.matrix else ((), ())
        return Box(
            tuple(start + low for start, low in zip(origin, lows, strict=True)),
            tuple(start + high + size for start, high, size in zip(origin, highs, self.shape, strict=True)),
        )

    def translate(self, by: Sequence[int]) -> Projection:
        """The projection whose boxes are moved by the vector `by` of the tensor."""
        vector = Box(self.offset, self.offset).translate(by).start
        return Projection(self.matrix, vector, self.shape, self.index_rank)

    def compose(self, inner: Projection) -> Projection:
        """The projection that touches what `self` touches for all that `inner` touches: first `inner`, then `self`.

        The window of a point is exact. Over a box the result can be smaller than projecting twice, since a bounding box
        in between forgets how axes move together.

        Raises:
          SignatureError: when `self` does not take the rank that `inner` gives.
        """
        if self.index_rank != inner.tensor_rank:
            raise SignatureError(
                message(
                    "cannot compose projections.",
                    f"the inner one gives rank {inner.tensor_rank}",
                    f"the outer one takes rank {self.index_rank}",
                    remedy="Give the outer one a column per axis of the inner one.",
                )
            )
        columns = [[row[k] for row in inner.matrix] for k in range(inner.index_rank)]
        matrix = tuple(tuple(_dot(row, column) for column in columns) for row in self.matrix)
        window = self.project_box(Box.of_shape(inner.shape, inner.offset))
        return Projection(matrix, window.start, window.shape, inner.index_rank)

    def find_collision(self, box: Box) -> tuple[Point, Point] | None:
        """Two points of `box` that touch a common cell, or None where all touch disjoint boxes.

        Points collide exactly if their difference `d` is not 0 and `|A d| < shape` on every tensor axis. The search
        tightens bounds on `d` and cuts what is left in pieces; it is exact. Bounds alone decide where every row has one
        non-zero coefficient, and where a row is a row-major composition, which is all that the result of a signature
        can say.

        Raises:
          SignatureError: when the rank is wrong, or where the search gives up on large coefficients in long rows.
        """
        self.project_box(box)  # checks the rank
        if box.is_empty or 0 in self.shape:
            return None
        reach = [size - 1 for size in box.shape]
        bounds = [size - 1 for size in self.shape]
        nodes = 0
        for pivot in range(self.index_rank):
            # The first non-zero entry of d is positive, since -d collides too.
            stack = [[(0, 0)] * pivot + [(1, reach[pivot])] + [(-r, r) for r in reach[pivot + 1 :]]]
            while stack:
                nodes += 1
                if nodes > _NODES:
                    raise SignatureError(
                        message(
                            f"cannot decide whether points of {box} touch disjoint boxes.",
                            f"rows {self.matrix}, windows {self.shape}",
                            remedy="Use one index dimension, or one row-major composition, per result axis.",
                        )
                    )
                domain = _tightened(stack.pop(), self.matrix, bounds)
                if domain is None:
                    continue
                if all(low == high for low, high in domain):
                    return _apart(box, [low for low, _ in domain])
                stack.extend(_pieces(domain))
        return None

    def is_injective_on(self, box: Box) -> bool:
        """Whether distinct points of `box` touch disjoint boxes, so that they can be written without a conflict.

        Exact, by `find_collision`, which raises rather than guess.
        """
        return self.find_collision(box) is None

    def _origin(self, point: Sequence[int]) -> Point:
        return tuple(_dot(row, point) + shift for row, shift in zip(self.matrix, self.offset, strict=True))


def _row(axis: Axis, dims: Sequence[str], sizes: Mapping[str, int]) -> tuple[tuple[int, ...], int, int]:
    """Coefficients, offset and window of one axis."""
    coefficients = dict.fromkeys(dims, 0)
    offset, window, stride = axis.offset, 1, 1
    for position, term in reversed(list(enumerate(axis.terms))):
        coefficient = term.coefficient * stride
        if axis.kind == "composite" and position > 0:
            stride *= _size(term.name, sizes)
        if not term.whole and term.name in coefficients:
            coefficients[term.name] += coefficient
            continue
        size = _size(term.name, sizes)
        if size == 0:
            window = 0
        elif window > 0:
            offset += min(0, coefficient * (size - 1))
            window += abs(coefficient) * (size - 1)
    return tuple(coefficients[name] for name in dims), offset, window


def _size(name: str, sizes: Mapping[str, int]) -> int:
    if name not in sizes:
        raise SignatureError(
            message(
                f"cannot project an axis without the size of `{name}`.",
                f"sizes are known of {', '.join(sizes) or 'nothing'}",
                remedy=f"Give the size of `{name}`.",
            )
        )
    return int(sizes[name])


def _dot(row: Sequence[int], vector: Sequence[int]) -> int:
    return sum(a * x for a, x in zip(row, vector, strict=True))


def _extremes(row: Sequence[int], shape: Sequence[int]) -> tuple[int, int]:
    """Least and largest value of a row over a box of `shape` at the origin."""
    reaches = [coefficient * (size - 1) for coefficient, size in zip(row, shape, strict=True)]
    return sum(min(0, reach) for reach in reaches), sum(max(0, reach) for reach in reaches)


_Domain = list[tuple[int, int]]  # closed range of every entry of a difference of points


def _tightened(domain: _Domain, matrix: Sequence[Sequence[int]], bounds: Sequence[int]) -> _Domain | None:
    """Shrink every range to what `|A d| <= bounds` can still reach; None where nothing is left."""
    if any(low > high for low, high in domain):
        return None
    ranges = list(domain)
    for _ in range(_PASSES):
        before = list(ranges)
        for row, bound in zip(matrix, bounds, strict=True):
            products = [
                (a * low, a * high) if a >= 0 else (a * high, a * low)
                for a, (low, high) in zip(row, ranges, strict=True)
            ]
            least, most = sum(low for low, _ in products), sum(high for _, high in products)
            if least > bound or most < -bound:
                return None
            for column, a in enumerate(row):
                if a == 0:
                    continue
                # The others lie in least - low .. most - high, so a * d must lie in this range:
                floor, ceiling = -bound - (most - products[column][1]), bound - (least - products[column][0])
                if a < 0:
                    floor, ceiling = -ceiling, -floor
                low = max(ranges[column][0], -(-floor // abs(a)))
                high = min(ranges[column][1], ceiling // abs(a))
                if low > high:
                    return None
                ranges[column] = (low, high)
        if ranges == before:
            break
    return ranges


def _pieces(domain: _Domain) -> Iterator[_Domain]:
    """Cut the widest range in pieces, the one nearest to zero last, which a stack takes first."""
    column = max(range(len(domain)), key=lambda i: domain[i][1] - domain[i][0])
    low, high = domain[column]
    if low <= 0 <= high:
        ranges = [(low, -1), (1, high), (0, 0)]
    else:
        middle = (low + high) // 2
        ranges = [(middle + 1, high), (low, middle)]
        if high < 0:
            ranges.reverse()
    for piece in ranges:
        if piece[0] <= piece[1]:
            yield [*domain[:column], piece, *domain[column + 1 :]]


def _apart(box: Box, difference: Sequence[int]) -> tuple[Point, Point]:
    """Two points of the box with this difference."""
    first = tuple(low + max(0, -d) for low, d in zip(box.start, difference, strict=True))
    return first, tuple(at + d for at, d in zip(first, difference, strict=True))
