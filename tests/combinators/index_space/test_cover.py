"""Exact covers against counting how often every point is held."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combinators.errors import SignatureError
from combinators.index_space.box import Box
from combinators.index_space.cover import exact_cover, subtract

HUGE = 2**70


def boxes(rank: int) -> st.SearchStrategy[Box]:
    return st.builds(Box.of_shape, st.tuples(*[st.integers(0, 4)] * rank), st.tuples(*[st.integers(-2, 3)] * rank))


problems = st.integers(0, 3).flatmap(lambda rank: st.tuples(boxes(rank), st.lists(boxes(rank), max_size=6)))


@given(problems)
def test_cover_report_is_that_of_counting_points(problem: tuple[Box, list[Box]]):
    whole, parts = problem
    report = exact_cover(whole, parts)
    inside = set(whole.points())
    count = Counter(point for part in parts for point in part.points())

    held_in_gaps = [point for gap in report.gaps for point in gap.points()]
    assert sorted(held_in_gaps) == sorted(inside - set(count))  # as lists: gaps are disjoint
    excess = sorted((index, point) for index, box in report.outside for point in box.points())
    assert excess == sorted((i, p) for i, part in enumerate(parts) for p in part.points() if p not in inside)
    shared = {(i, j): set(box.points()) for i, j, box in report.overlaps}
    brute = {(i, j): set(parts[i].points()) & set(parts[j].points()) for j in range(len(parts)) for i in range(j)}
    assert shared == {pair: points for pair, points in brute.items() if points}
    assert report.is_exact == (set(count) == inside and set(count.values()) <= {1})


@given(boxes(2), boxes(2))
def test_cover_subtraction_is_that_of_point_sets(box: Box, hole: Box):
    pieces = subtract(box, hole)
    assert sorted(point for piece in pieces for point in piece.points()) == sorted(
        set(box.points()) - set(hole.points())
    )
    assert len(pieces) <= 4


def guillotine(whole: Box, cuts: int, seed: int) -> list[Box]:
    """Random exact tiling by cutting random pieces at random places."""
    chance, pieces = random.Random(seed), [whole]
    for _ in range(cuts):
        piece = pieces.pop(chance.randrange(len(pieces)))
        axis = chance.randrange(whole.rank)
        pieces += piece.split(axis, at=chance.randint(piece.start[axis], piece.stop[axis]))
    chance.shuffle(pieces)
    return pieces


def test_cover_by_hundreds_of_huge_tiles_is_exact():
    whole = Box((-HUGE,) * 3, (HUGE, 2 * HUGE, 5))
    assert exact_cover(whole, guillotine(whole, 500, seed=1)).is_exact


def test_cover_finds_the_tile_taken_out_of_hundreds():
    whole = Box((-HUGE, 0), (HUGE, HUGE))
    tiles = [tile for tile in guillotine(whole, 500, seed=2) if not tile.is_empty]
    missing = tiles.pop(123)
    report = exact_cover(whole, tiles)
    assert (report.gaps, report.overlaps, report.outside) == ((missing,), (), ())


def test_cover_does_not_trust_a_sum_of_sizes():
    # An overlap of one column hides a gap of one column; sizes and bounding box are those of an exact cover.
    whole = Box.of_shape((2, 4))
    parts = [Box((0, 0), (2, 2)), Box((0, 1), (2, 2)), Box((0, 3), (2, 4))]
    report = exact_cover(whole, parts)
    assert sum(part.size for part in parts) == whole.size
    assert report.gaps == (Box((0, 2), (2, 3)),)
    assert report.overlaps == ((0, 1, Box((0, 1), (2, 2))),)
    assert not report.is_exact


def test_cover_ignores_empty_parts():
    assert exact_cover(Box.of_shape((4,)), [Box((0,), (4,)), Box((9,), (9,))]).is_exact


def test_cover_of_an_empty_box_is_exact_without_points():
    empty = Box((3,), (3,))
    assert exact_cover(empty, []).is_exact
    assert exact_cover(empty, [Box((3,), (4,))]).outside == ((0, Box((3,), (4,))),)


def test_cover_reports_a_part_that_reaches_outside():
    report = exact_cover(Box.of_shape((4,)), [Box((-2,), (4,))])
    assert report.outside == ((0, Box((-2,), (0,))),)
    assert not report.gaps


def test_cover_merges_the_pieces_of_one_gap():
    # The faces of the four parts of this pinwheel all cross its middle's sides.
    parts = [Box((0, 0), (2, 4)), Box((0, 4), (4, 6)), Box((4, 2), (6, 6)), Box((2, 0), (6, 2))]
    assert exact_cover(Box.of_shape((6, 6)), parts).gaps == (Box((2, 2), (4, 4)),)


def test_cover_text_gives_the_counterexamples():
    parts = [Box((0,), (2,)), Box((1,), (3,)), Box((6,), (7,))]
    assert str(exact_cover(Box.of_shape((5,)), parts)) == (
        "no part holds [3:5]\nheld twice: [1:2] by parts 0 and 1\noutside: [6:7] of part 2"
    )
    many = exact_cover(Box.of_shape((20,)), [Box((i,), (i + 1,)) for i in range(0, 20, 2)])
    assert str(many).splitlines()[-1] == "no part holds ... and 6 more"
    assert str(exact_cover(Box.of_shape((2,)), [Box.of_shape((2,))])) == "an exact cover"


def test_cover_refuses_a_part_of_another_rank():
    with pytest.raises(SignatureError, match=r"part 1 cannot cover the box \[0:4\]"):
        exact_cover(Box.of_shape((4,)), [Box.of_shape((4,)), Box.of_shape((4, 1))])
