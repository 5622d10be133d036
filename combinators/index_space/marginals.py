"""What neighbouring pieces share, skip, read and cost: the numbers that a choice of cuts weighs.

All of them follow from a projection alone, so a plan can be priced before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from combinators.errors import SignatureError, message
from combinators.index_space.box import Box, integers
from combinators.index_space.projection import Projection


@dataclass(frozen=True, slots=True)
class Marginals:
    """How the windows of neighbouring index points lie to each other, per index dimension and tensor axis.

    Entry `[i][j]` compares, along tensor axis `j`, the window of a point with that of the next point along dimension
    `i`.

    Args:
      overlap: cells that both read: `max(0, shape - |stride|)`. Where a dimension does not move an axis, all of the
        window is shared. A cut along the dimension makes this the halo.
      waste: cells between the two that neither reads: `max(0, |stride| - shape)`.
    """

    overlap: tuple[tuple[int, ...], ...]
    waste: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(projection: Projection) -> Marginals:
        """The marginals of a projection: one row per index dimension, one entry per tensor axis."""
        excess = [
            [size - abs(row[dim]) for row, size in zip(projection.matrix, projection.shape, strict=True)]
            for dim in range(projection.index_rank)
        ]
        return Marginals(
            overlap=tuple(tuple(max(0, cells) for cells in row) for row in excess),
            waste=tuple(tuple(max(0, -cells) for cells in row) for row in excess),
        )


@dataclass(frozen=True, slots=True)
class AffineCost:
    """A cost that grows by a constant with every step along every index dimension.

    Args:
      per_step: cost of one more coordinate, per index dimension; any unit.
      base: cost of a block that is paid once.
    """

    per_step: tuple[int, ...]
    base: int = 0

    def of(self, box: Box) -> int:
        """The cost of a block: `base + sum(per_step * shape)`; an empty block is not run and costs nothing.

        Raises:
          SignatureError: when the rank of the box differs from the number of dimensions priced.
        """
        steps = integers(self.per_step, "cost per step")
        if len(steps) != box.rank:
            raise SignatureError(
                message(
                    f"cannot price the block {box}.",
                    f"costs are known of {len(steps)} dimensions",
                    f"the block has rank {box.rank}",
                    remedy="Give one cost per index dimension.",
                )
            )
        if box.is_empty:
            return 0
        return self.base + sum(step * size for step, size in zip(steps, box.shape, strict=True))


def cells_read(projection: Projection, box: Box) -> int:
    """Cells of the tensor that a block loads: the size of its projected box, cells skipped by strides included.

    Args:
      projection: of an operand.
      box: a block of the index space.

    Returns:
      Number of cells; 0 for an empty block.

    Raises:
      SignatureError: when the ranks differ.
    """
    read = projection.project_box(box)
    return 0 if box.is_empty else read.size


def cells_read_by(projections: Iterable[Projection], blocks: Iterable[Box]) -> int:
    """Cells that all blocks of a split load from all operands; a cell that two blocks load counts twice.

    Args:
      projections: of the operands, from one index space.
      blocks: the pieces of the index space.

    Returns:
      Number of cells.

    Raises:
      SignatureError: when the ranks differ.
    """
    operands = tuple(projections)
    return sum(cells_read(projection, block) for block in blocks for projection in operands)
