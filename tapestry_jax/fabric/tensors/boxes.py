"""Boxes of tensors: read from what users write, and cut by the grid of a tensor's blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

from combinators.arguments import is_whole, read_list
from combinators.errors import message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.storage.boxes import shape_of as shape_of
from tapestry_jax.storage.boxes import slices as slices
from tapestry_jax.storage.boxes import whole as whole
from tapestry_jax.storage.protocols import Box as Box

BLOCK_BYTES = 8 * 2**20
"""What a block holds at most, where its tensor does not say: it is read, written and checked as a whole."""
MOST_BLOCKS = 2**63
"""A tensor has fewer blocks: SQLite counts no further."""
_REMEDY = 'Write slices by the names of axes: {"batch": slice(0, 8)}; an axis that is left out is taken whole.'


@dataclass(frozen=True)
class Piece:
    """What a box has of one block.

    Attributes:
      position: of the block, row by row.
      block: what the block holds of the tensor.
      part: what of it lies in the box.
    """

    position: int
    block: Box
    part: Box

    @property
    def is_all(self) -> bool:
        """Whether the box has all of the block."""
        return self.part == self.block


def shown(box: Box, names: tuple[str | None, ...]) -> str:
    """`batch=0:8, 1=0:64`, for messages."""
    parts = [f"{i if n is None else n}={a}:{b}" for i, (n, (a, b)) in enumerate(zip(names, box, strict=True))]
    return ", ".join(parts) or "its one cell"


def pieces(box: Box, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[Piece]:
    """The blocks that a box touches, in the order in which they lie."""
    if any(start == stop for start, stop in box):
        return
    counts = tuple(-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True))
    ranges = [range(start // c, -(-stop // c)) for (start, stop), c in zip(box, chunks, strict=True)]
    for at in itertools.product(*ranges):
        position = 0
        for index, count in zip(at, counts, strict=True):
            position = position * count + index
        block = tuple((i * c, min((i + 1) * c, n)) for i, c, n in zip(at, chunks, shape, strict=True))
        part = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, block, strict=True))
        yield Piece(position, block, part)


def blocks_of(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[Piece]:
    """All blocks."""
    return pieces(whole(shape), shape, chunks)


def count_of(shape: tuple[int, ...], chunks: tuple[int, ...]) -> int:
    """How many blocks there are; none of a tensor without cells."""
    return math.prod(-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True))


def choose_chunks(shape: tuple[int, ...], itemsize: int, most: int = BLOCK_BYTES) -> tuple[int, ...]:
    """Blocks of at most `most` bytes that lie in one piece: outer axes are cut first."""
    chosen = [max(size, 1) for size in shape]
    for axis in range(len(chosen)):
        rest = math.prod(chosen[axis + 1 :]) * itemsize
        chosen[axis] = min(chosen[axis], max(most // max(rest, 1), 1))
        if chosen[axis] > 1 or rest <= most:
            break
    return tuple(chosen)


def read_box(asked: Any, kind: TensorType, where: str) -> Box:
    """A box of a tensor, of what a user wrote: None for all of it, slices by name or position, or in order.

    Raises:
      FabricError: for axes that are not there, steps, what is no slice, and what lies outside.
    """
    if asked is None:
        return whole(kind.shape)
    if isinstance(asked, Mapping):
        found = {_axis(key, kind, where): part for key, part in cast("Mapping[Any, Any]", asked).items()}
        if len(found) != len(cast("Mapping[Any, Any]", asked)):
            raise _wrong(where, kind, "it names an axis twice", asked)
        parts: list[Any] = [found.get(axis) for axis in range(kind.ndim)]
    elif isinstance(asked, tuple | list):
        parts = list(cast("tuple[Any, ...]", asked))
        if len(parts) != kind.ndim:
            raise _wrong(where, kind, f"expected {kind.ndim} slices, got {len(parts)}", asked)
    else:
        raise _wrong(where, kind, f"it is a {type(asked).__name__}", asked)
    return tuple(_range(part, axis, kind, where) for axis, part in enumerate(parts))


def read_chunks(asked: Any, kind: TensorType, where: str) -> tuple[int, ...] | None:
    """Sizes of blocks, of what a user wrote; None leaves them open.

    Raises:
      FabricError: for what are none.
    """
    if asked is None:
        return None
    found = read_list(asked, f"chunks= of {where}", FabricError)
    if len(found) != kind.ndim or not all(isinstance(each, int) and each > 0 for each in found):
        told = f"expected {kind.ndim} sizes for {kind}, got {spelt(asked)}"
        raise FabricError(message(f"{where}: these are no sizes of blocks", told, remedy="Write chunks=(64, 512)."))
    return found


def _axis(key: Any, kind: TensorType, where: str) -> int:
    if isinstance(key, str) and key in kind.names:
        return kind.names.index(key)
    if is_whole(key) and -kind.ndim <= int(key) < kind.ndim:
        return int(key) % kind.ndim
    raise _wrong(where, kind, f"it has no axis {spelt(key)}", key)


def _range(part: Any, axis: int, kind: TensorType, where: str) -> tuple[int, int]:
    size, called = kind.shape[axis], kind.names[axis] or axis
    if part is None:
        return 0, size
    bounds: tuple[Any, ...] = ()
    if isinstance(part, slice) and part.step in (None, 1):
        bounds = (0 if part.start is None else part.start, size if part.stop is None else part.stop)
    elif isinstance(part, tuple) and len(cast("tuple[Any, ...]", part)) == 2:
        bounds = cast("tuple[Any, ...]", part)
    if len(bounds) != 2 or not all(map(is_whole, bounds)):
        raise _wrong(where, kind, f"axis {called}: expected a slice without a step, got {spelt(part)}", part)
    start, stop = (int(bound) + size * (int(bound) < 0) for bound in bounds)
    if not 0 <= start <= stop <= size:
        raise _wrong(where, kind, f"axis {called}: {spelt(part)} does not lie in 0:{size}", part)
    return start, stop


def _wrong(where: str, kind: TensorType, why: str, asked: Any) -> FabricError:
    return FabricError(message(f"{where}: this is no box of {kind}", why, f"got {spelt(asked, 120)}", remedy=_REMEDY))
