"""Boxes against Python's own ranges and `itertools.product`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combinators.errors import SignatureError
from combinators.index_space.box import Box

HUGE = 2**70


def enumerated(box: Box) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(low, high) for low, high in zip(box.start, box.stop, strict=True))))


def boxes(rank: int) -> st.SearchStrategy[Box]:
    corner = st.tuples(*[st.integers(-4, 4)] * rank)
    shape = st.tuples(*[st.integers(0, 4)] * rank)
    return st.builds(Box.of_shape, shape, corner)


same_rank = st.integers(0, 3).flatmap(lambda rank: st.tuples(boxes(rank), boxes(rank)))


@given(same_rank)
def test_box_points_are_the_product_of_ranges(pair: tuple[Box, Box]):
    box, _ = pair
    assert list(box.points()) == enumerated(box)
    assert box.size == len(enumerated(box))
    assert box.is_empty == (not enumerated(box))


@given(same_rank)
def test_box_intersection_and_containment_are_those_of_point_sets(pair: tuple[Box, Box]):
    left, right = pair
    common = set(enumerated(left)) & set(enumerated(right))
    assert set(left.intersect(right).points()) == common
    assert left.contains(right) == (set(enumerated(right)) <= set(enumerated(left)))
    assert all(left.contains(point) == (point in common) for point in enumerated(right))


@given(same_rank)
def test_box_bounding_is_the_smallest_box_around_all_points(pair: tuple[Box, Box]):
    left, right = pair
    points = enumerated(left) + enumerated(right)
    bounding = left.bounding(right)
    assert bounding.is_empty == (not points)
    if points:
        assert bounding.start == tuple(map(min, zip(*points, strict=True)))
        assert bounding.stop == tuple(max(axis) + 1 for axis in zip(*points, strict=True))


@given(same_rank)
def test_box_product_joins_every_pair_of_points(pair: tuple[Box, Box]):
    left, right = pair
    assert list(left.product(right).points()) == [p + q for p in enumerated(left) for q in enumerated(right)]


@given(boxes(2), st.integers(0, 1), st.integers(1, 6))
def test_box_split_in_parts_is_that_of_array_split(box: Box, axis: int, parts: int):
    pieces = box.split(axis, parts)
    reference = np.array_split(np.arange(box.start[axis], box.stop[axis]), parts)
    assert [list(range(p.start[axis], p.stop[axis])) for p in pieces] == [r.tolist() for r in reference]
    assert sorted(q for p in pieces for q in p.points()) == enumerated(box)


@given(boxes(2), st.integers(0, 1), st.data())
def test_box_split_at_cuts_covers_in_order(box: Box, axis: int, data: st.DataObject):
    cut = st.integers(box.start[axis], box.stop[axis])
    cuts = sorted(data.draw(st.lists(cut, max_size=3)))
    pieces = box.split(axis, at=cuts)
    assert [p.start[axis] for p in pieces] == [box.start[axis], *cuts]
    assert sorted(q for p in pieces for q in p.points()) == enumerated(box)


def test_box_split_by_size_leaves_the_remainder_last():
    assert Box((-3,), (7,)).split(0, size=4) == (Box((-3,), (1,)), Box((1,), (5,)), Box((5,), (7,)))
    assert Box((2,), (2,)).split(0, size=4) == (Box((2,), (2,)),)


def test_box_grid_is_row_major():
    assert [str(piece) for piece in Box.of_shape((4, 3)).grid((2, 2))] == [
        "[0:2, 0:2]",
        "[0:2, 2:3]",
        "[2:4, 0:2]",
        "[2:4, 2:3]",
    ]


def test_box_stop_below_start_is_an_empty_axis():
    box = Box((5, 0), (3, 4))
    assert box == Box((5, 0), (5, 4))
    assert (box.shape, box.size, box.is_empty) == ((0, 4), 0, True)


def test_box_of_rank_zero_holds_one_point():
    assert (Box((), ()).size, list(Box((), ()).points())) == (1, [()])


def test_box_is_exact_past_64_bits():
    box = Box((-HUGE, 0), (HUGE, HUGE))
    assert box.size == math.prod((2 * HUGE, HUGE))
    assert [p.size for p in box.split(0, 3)] == [((2 * HUGE + 2 - i) // 3) * HUGE for i in range(3)]
    assert next(box.points()) == (-HUGE, 0)


def test_box_turns_numpy_integers_into_python_integers():
    box = Box.of_shape(np.array([2**31 - 1, 2**31 - 1], np.int32).tolist(), np.array([1, 1], np.int32))  # pyright: ignore[reportArgumentType]
    assert all(type(value) is int for value in (*box.start, *box.stop))
    assert box.stop == (2**31, 2**31)


def test_box_slices_select_from_an_array_at_any_origin():
    whole = Box((-3, 2), (2, 6))
    array = np.array([10 * y + x for y, x in whole.points()]).reshape(whole.shape)
    part = Box((-1, 3), (1, 5))
    assert array[part.slices(whole)].tolist() == [[-7, -6], [3, 4]]
    assert array[Box((9, 2), (9, 5)).slices(whole)].shape[0] == 0


def test_box_translation_moves_both_corners():
    assert Box((0, 1), (2, 3)).translate((-5, 7)) == Box((-5, 8), (-3, 10))


def test_box_rank_mismatch_names_both_boxes():
    with pytest.raises(SignatureError) as error:
        Box.of_shape((2, 2)).intersect(Box.of_shape((3,)))
    assert str(error.value) == (
        "cannot intersect boxes of different rank.\n"
        "  [0:2, 0:2] has rank 2\n"
        "  [0:3] has rank 1\n"
        "  Give both boxes the same axes."
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Box((0,), (1, 2)), "as many stops as starts"),
        (lambda: Box((0.5,), (1,)), "the start of a box must be integers"),  # pyright: ignore[reportArgumentType]
        (lambda: Box.of_shape((2,), (0, 0)), "start of rank 2"),
        (lambda: Box.of_shape((2,)).translate((1, 1)), "vector of rank 2"),
        (lambda: Box.of_shape((2,)).contains((1, 1)), "point of rank 2"),
        (lambda: Box.of_shape((2,)).contains(Box.of_shape((2, 2))), "different rank"),
        (lambda: Box.of_shape((2,)).bounding(Box.of_shape((2, 2))), "different rank"),
        (lambda: Box.of_shape((2,)).grid((1, 1)), "parts of rank 2"),
        (lambda: Box.of_shape((2,)).split(1, 2), "its axes are 0 to 0"),
        (lambda: Box.of_shape((2,)).split(0), "exactly one of parts, at and size"),
        (lambda: Box.of_shape((2,)).split(0, 2, at=1), "exactly one of parts, at and size"),
        (lambda: Box.of_shape((2,)).split(0, 0), "positive number"),
        (lambda: Box.of_shape((2,)).split(0, at=3), "ascending coordinates from 0 to 2"),
        (lambda: Box.of_shape((4,)).split(0, at=(3, 1)), "ascending coordinates from 0 to 4"),
        (lambda: Box((-1,), (1,)).slices(Box.of_shape((4,))), "the array holds [0:4]"),
    ],
)
def test_box_refuses_what_it_cannot_mean(call: Callable[[], object], text: str):
    with pytest.raises(SignatureError) as error:
        call()
    assert text in str(error.value)
