"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[tuple[str, ...]]:
    """The cells of a table, each as wide as the widest of its column.

    Args:
      rows: all of one length, the header among them.
      right: the columns of numbers, whose cells are put to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    put = [str.rjust if position in right else str.ljust for position in range(len(widths))]
    return [tuple(to(cell, width) for cell, width, to in zip(row, widths, put, strict=True)) for row in rows]
