"""What is drawn ties along every axis, unevenly, whatever the seed."""

from __future__ import annotations

import numpy as np
import pytest

from laws.draws.ties import TIES, tied

SHAPES = [(2,), (3,), (4,), (5,), (32,), (2, 2), (4, 3), (7, 5, 6)]


def most(shape, domain, seed):
    """Where the largest is, or in `lows` the smallest."""
    drawn = tied(shape, domain, np.random.default_rng(seed)) * (1 if domain == "highs" else -1)
    return drawn == drawn.max()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("domain", TIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_largest_or_the_smallest_ties_along_every_axis(shape, domain, seed):
    for axis, size in enumerate(shape):
        assert most(shape, domain, seed).sum(axis).max() == min(size, 3)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("domain", TIES)
@pytest.mark.parametrize(
    ("size", "boxes"), [(3, 2), (4, 2), (5, 2), (6, 2), (6, 3), (32, 2), (32, 4), (32, 8), (33, 8)]
)
def test_boxes_hold_different_numbers_of_what_ties(size, boxes, domain, seed):
    block = -(-size // boxes)
    counts = [int(most((size,), domain, seed)[i : i + block].sum()) for i in range(0, size, block)]
    assert sorted(count for count in counts if count) == [1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_where_there_is_room_both_ends_tie(seed):
    drawn = tied((6, 5), "highs", np.random.default_rng(seed))
    for axis in (0, 1):
        assert (drawn == drawn.min()).sum(axis).max() >= 2


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3)], ids=str)
def test_what_cannot_tie_is_drawn_as_integers(shape):
    drawn = tied(shape, "highs", np.random.default_rng(0))
    assert drawn.shape == shape
    assert (np.abs(drawn) <= 5).all()
