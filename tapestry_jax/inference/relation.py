"""How one axis of an operand and one of a result hang together, read off a matrix of booleans."""

from __future__ import annotations

from typing import Any, Literal, final

import numpy as np

from combinators.frozen import dataclass

Kind = Literal["none", "same", "window", "before", "behind", "all", "other"]


@final
@dataclass(frozen=True)
class Relation:
    """Which cells of an operand's axis a cell of a result's axis reads.

    Attributes:
      kind: `none` of them; the `same` one; a `window`; all `before` and including it, or `behind`; `all`; or `other`.
      stride: of a window: cells from one to the next.
      dilation: of a window: cells between its members.
      offset: first cell of the first window.
      width: members of a window.
    """

    kind: Kind
    stride: int = 1
    dilation: int = 1
    offset: int = 0
    width: int = 1

    def span(self, low: int, high: int) -> tuple[int, int]:
        """The cells that the coordinates `[low, high)` of the result read."""
        if high <= low:
            return 0, 0
        first = self.offset + self.stride * low
        return first, self.offset + self.stride * (high - 1) + self.dilation * (self.width - 1) + 1

    def term(self, dim: str, window: str) -> str:
        """The axis of the operand as a signature writes it."""
        if self.kind == "same":
            return dim
        parts = [dim if self.stride == 1 else f"{self.stride}*{dim}"]
        if self.width > 1:
            parts.append(f"[{window}]" if self.dilation == 1 else f"{self.dilation}*[{window}]")
        return f"({'+'.join(parts)})"


def read_relation(matrix: np.ndarray[Any, Any]) -> Relation:
    """Read a relation off a matrix: a row for each cell of the operand's axis, a column for each of the result's."""
    rows, columns = matrix.shape
    if not matrix.any():
        return Relation("none")
    if rows == columns and rows > 1:
        cell, all_cells = np.eye(rows, dtype=bool), np.ones((rows, rows), bool)
        if (matrix == cell).all():
            return Relation("same")
        if (matrix == np.triu(all_cells)).all():
            return Relation("before")
        if (matrix == np.tril(all_cells)).all():
            return Relation("behind")
    window = _window(matrix) if columns > 1 else None
    if window is not None:
        return window
    return Relation("all") if matrix.all() else Relation("other")


def _window(matrix: np.ndarray[Any, Any]) -> Relation | None:
    """A window that every column reads, each one stride on; it reaches as far as the axis does."""
    rows, columns = matrix.shape
    read = [np.flatnonzero(matrix[:, column]) for column in range(columns)]
    width = len(read[0])
    if not width or any(len(cells) != width for cells in read):
        return None
    stride, offset = int(read[1][0] - read[0][0]), int(read[0][0])
    dilation = int(read[0][1] - read[0][0]) if width > 1 else 1
    if stride < 1 or offset != 0:
        return None
    members = dilation * np.arange(width)
    if not all((cells == stride * column + members).all() for column, cells in enumerate(read)):
        return None
    # A signature reads as far as it can; a kernel that stops sooner has another one.
    largest = (rows - 1 - dilation * (width - 1)) // stride + 1
    return Relation("window", stride, dilation, 0, width) if largest == columns else None
