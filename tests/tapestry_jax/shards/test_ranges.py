"""Ranges of one axis, and the cells that a boundary reads in their place."""

from __future__ import annotations

import numpy as np
import pytest

from combinators.index_space.boundary import BOUNDARIES
from tapestry_jax.shards.ranges import answered
from tests.combinators.leaves.test_map import PADS


@pytest.mark.parametrize("mode", BOUNDARIES[1:])
@pytest.mark.parametrize(
    ("low", "high", "size"), [(-2, 3, 5), (3, 9, 5), (-4, 9, 5), (1, 4, 5), (-2, 2, 1), (-3, 0, 4)]
)
def test_a_boundary_reads_the_cells_that_numpy_pads_with(mode: str, low: int, high: int, size: int) -> None:
    widths = (max(-low, 0), max(high - size, 0))
    padded = np.pad(np.arange(1, size + 1), widths, mode=PADS[mode])  # pyright: ignore[reportCallIssue, reportArgumentType]
    read = {int(cell) - 1 for cell in padded[low + widths[0] : high + widths[0]] if cell}
    found = answered(((low, high),), size, mode)
    assert {cell for first, last in found for cell in range(first, last)} == read


def test_a_boundary_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no sharded graph knows the boundary 'nowhere'"):
        answered(((-1, 2),), 3, "nowhere")
