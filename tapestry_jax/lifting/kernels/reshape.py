"""Reshaping blocks: axes that split and merge, row-major."""

from __future__ import annotations

import math
from typing import Any

from combinators.frozen import dataclass

Group = tuple[str, ...]


@dataclass(frozen=True)
class Reshape:
    """The cells in the same order in other axes.

    Attributes:
      source: for each axis of the operand its dimensions, the outermost first.
      target: the same for the result.
      fixed: sizes of the dimensions that are never cut.
    """

    source: tuple[Group, ...]
    target: tuple[Group, ...]
    fixed: tuple[tuple[str, int], ...]

    def __call__(self, block: Any) -> Any:
        """The block in its other shape."""
        sizes = dict(self.fixed)
        for dims, size in zip(self.source, block.shape, strict=True):
            inner = math.prod(sizes[dim] for dim in dims[1:])
            if dims and dims[0] not in sizes:
                sizes[dims[0]] = size // inner if inner else 0
        return block.reshape([math.prod(sizes[dim] for dim in dims) for dims in self.target])
