"""Projections against the union of the images of all points."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combinators.errors import SignatureError
from combinators.index_space.axis import Axis, Term
from combinators.index_space.box import Box
from combinators.index_space.projection import Projection
from combinators.index_space.signature import Signature


def projections(index_rank: int, tensor_rank: int, windows: st.SearchStrategy[int]) -> st.SearchStrategy[Projection]:
    row = st.tuples(*[st.integers(-3, 3)] * index_rank)
    return st.builds(
        Projection,
        st.tuples(*[row] * tensor_rank),
        st.tuples(*[st.integers(-5, 5)] * tensor_rank),
        st.tuples(*[windows] * tensor_rank),
        st.just(index_rank),
    )


def boxes(rank: int, least: int = 0, most: int = 4) -> st.SearchStrategy[Box]:
    return st.builds(
        Box.of_shape, st.tuples(*[st.integers(least, most)] * rank), st.tuples(*[st.integers(-4, 4)] * rank)
    )


def cells(projection: Projection, point: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The definition, with NumPy: every cell of `[A p + b, A p + b + shape)`."""
    matrix = np.array(projection.matrix, dtype=int).reshape(projection.tensor_rank, projection.index_rank)
    start = matrix @ np.array(point, dtype=int) + np.array(projection.offset, dtype=int)
    window = itertools.product(*map(range, projection.shape))
    return {tuple(int(s + w) for s, w in zip(start, step, strict=True)) for step in window}


problems = st.tuples(st.integers(0, 3), st.integers(1, 3)).flatmap(
    lambda ranks: st.tuples(projections(*ranks, windows=st.integers(0, 3)), boxes(ranks[0]))
)


@given(problems)
def test_projection_of_a_box_bounds_the_images_of_its_points(problem: tuple[Projection, Box]):
    projection, box = problem
    touched = set().union(*(cells(projection, point) for point in box.points()))
    projected = projection.project_box(box)
    assert projected.is_empty == (not touched)
    if touched:
        assert projected.start == tuple(map(min, zip(*touched, strict=True)))
        assert projected.stop == tuple(max(axis) + 1 for axis in zip(*touched, strict=True))


@given(problems)
def test_projection_of_a_point_is_its_window(problem: tuple[Projection, Box]):
    projection, box = problem
    for point in itertools.islice(box.points(), 3):
        assert set(projection.project_point(point).points()) == cells(projection, point)


@given(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)).flatmap(
        lambda ranks: st.tuples(
            projections(ranks[0], ranks[1], st.integers(0, 3)),
            projections(ranks[1], ranks[2], st.integers(0, 3)),
            boxes(ranks[0]),
        )
    )
)
def test_projection_composition_projects_points_twice(problem: tuple[Projection, Projection, Box]):
    inner, outer, box = problem
    composed = outer.compose(inner)
    for point in box.points():
        twice = outer.project_box(inner.project_point(point))
        once = composed.project_point(point)
        assert once.is_empty == twice.is_empty
        assert once.is_empty or once == twice
    assert outer.project_box(inner.project_box(box)).contains(composed.project_box(box))


collisions = st.tuples(st.integers(0, 3), st.integers(1, 2)).flatmap(
    lambda ranks: st.tuples(projections(*ranks, windows=st.integers(0, 3)), boxes(ranks[0]))
)


@given(collisions)
def test_projection_is_injective_where_no_two_points_share_a_cell(problem: tuple[Projection, Box]):
    projection, box = problem
    images = [cells(projection, point) for point in box.points()]
    assert projection.is_injective_on(box) == (sum(map(len, images)) == len(set().union(*images)))
    collision = projection.find_collision(box)
    if collision is not None:
        first, second = collision
        assert first != second
        assert box.contains(first)
        assert box.contains(second)
        assert cells(projection, first) & cells(projection, second)


def test_projection_injectivity_is_decided_on_huge_boxes():
    size = 2**70
    row_major = Projection(((size, 1),), (0,), (1,))
    assert row_major.is_injective_on(Box.of_shape((size, size)))
    assert row_major.find_collision(Box.of_shape((size, size + 1))) == ((0, size), (1, 0))
    strided = Projection(((3, 0), (0, -2)), (5, 5), (3, 2))
    assert strided.is_injective_on(Box.of_shape((size, size)))
    assert Projection(((3, 0), (0, -2)), (5, 5), (3, 3)).find_collision(Box.of_shape((size, size))) is not None
    assert not Projection(((1, 0),), (0,), (1,)).is_injective_on(Box.of_shape((size, 2)))


def test_projection_injectivity_needs_all_rows_together():
    # Either row alone maps many points to one cell; both together are a bijection.
    skewed = Projection(((1, 1), (1, 2)), (0, 0), (1, 1))
    assert skewed.is_injective_on(Box.of_shape((30, 30)))
    assert not Projection(((1, 1), (2, 2)), (0, 0), (1, 1)).is_injective_on(Box.of_shape((30, 30)))


def test_projection_collision_along_one_dimension_only_is_found():
    # The rows say d1 = -d2 and d1 = d2, which leaves d1 = d2 = 0, though no bound shows it; dimension 0 moves nothing.
    projection = Projection(((0, 1, 1), (0, 1, -1)), (0, 0), (1, 1))
    assert projection.find_collision(Box.of_shape((2, 6, 6))) == ((0, 0, 0), (1, 0, 0))
    assert projection.is_injective_on(Box.of_shape((1, 6, 6)))


def test_projection_injectivity_gives_up_with_an_error_not_a_guess():
    # Three large coprime coefficients: whether they cancel within the box is a knapsack.
    hostile = Projection(((10**12 + 39, 10**12 + 61, 10**12 + 63),), (0,), (1,))
    with pytest.raises(SignatureError, match="cannot decide whether points"):
        hostile.is_injective_on(Box.of_shape((10**9,) * 3))


def test_projection_sees_through_mixed_signs():
    difference = Projection(((1, -1),), (0,), (1,))
    assert difference.project_box(Box.of_shape((3, 4))) == Box((-3,), (3,))


def test_projection_is_exact_past_64_bits():
    projection = Projection(((2**80, -(2**80)),), (1,), (3,))
    assert projection.project_box(Box((0, 0), (2**70, 2**70))) == Box(
        (1 - 2**80 * (2**70 - 1),), (1 + 2**80 * (2**70 - 1) + 3,)
    )


def test_projection_of_an_empty_box_is_empty_on_every_axis():
    projection = Projection(((1, 0), (0, 0)), (7, 2), (4, 4))
    assert projection.project_box(Box((3, 5), (9, 5))).shape == (0, 0)


def test_projection_translation_moves_every_image():
    projection = Projection(((2,),), (1,), (3,))
    assert projection.translate((-10,)).project_point((4,)) == projection.project_point((4,)).translate((-10,))


def reads(text: str, operand: int, dims: tuple[str, ...], sizes: dict[str, int]) -> Projection:
    return Projection.from_axes(Signature.parse(text).operands[operand].axes, dims, sizes)


def test_projection_of_a_strided_convolution_signature():
    text = "b (2*y+[dy]) (3*dx+x-1) c, [dy] dx c o -> b y x o"
    image = reads(text, 0, ("b", "y", "x", "dx", "c", "o"), {"dy": 3, "dx": 5})
    assert image == Projection(
        ((1, 0, 0, 0, 0, 0), (0, 2, 0, 0, 0, 0), (0, 0, 1, 3, 0, 0), (0, 0, 0, 0, 1, 0)), (0, 0, -1, 0), (1, 3, 1, 1)
    )
    kernel = reads(text, 1, ("b", "y", "x", "dx", "c", "o"), {"dy": 3})
    assert kernel.shape == (3, 1, 1, 1)
    assert kernel.matrix[0] == (0,) * 6


def test_projection_of_a_whole_term_with_negative_coefficient_starts_earlier():
    # y - 2*[dy] for dy of 0, 1, 2 reads y-4, y-2, y.
    axis = Axis("affine", (Term("y"), Term("dy", -2, whole=True)), 1)
    projection = Projection.from_axes([axis], ("y",), {"dy": 3})
    assert projection.project_point((10,)) == Box((7,), (12,))


def test_projection_of_a_composite_axis_is_that_of_ravel_multi_index():
    axis = Axis("composite", (Term("a"), Term("b"), Term("c")))
    projection = Projection.from_axes([axis], ("c", "a", "b"), {"b": 3, "c": 5})
    for a, b, c in itertools.product(range(4), range(3), range(5)):
        cell = int(np.ravel_multi_index((a, b, c), (4, 3, 5)))
        assert projection.project_point((c, a, b)) == Box((cell,), (cell + 1,))


def test_projection_reads_the_inner_part_of_a_composite_axis_in_full():
    axis = Axis("composite", (Term("h"), Term("d")))
    assert Projection.from_axes([axis], ("h",), {"d": 8}) == Projection(((8,),), (0,), (8,))


def test_projection_reads_a_whole_term_in_full_where_the_index_space_has_it():
    image = reads("(y+[dy]) -> y", 0, ("y", "dy"), {"dy": 3})
    assert image == Projection(((1, 0),), (0,), (3,))


def test_projection_of_a_broadcast_axis_and_of_a_scalar():
    one = Projection.from_axes([Axis("one")], ("y",), {})
    assert one.project_box(Box((3,), (9,))) == Box((0,), (1,))
    scalar = Projection.from_axes([], ("y", "x"), {})
    assert (scalar.index_rank, scalar.tensor_rank) == (2, 0)
    assert scalar.project_point((4, 4)) == Box((), ())
    assert scalar.find_collision(Box.of_shape((1, 2))) == ((0, 0), (0, 1))


def test_projection_of_an_empty_window_reads_nothing():
    assert reads("(y+[dy]) -> y", 0, ("y",), {"dy": 0}).project_point((3,)).is_empty


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Projection(((1, 0), (1,)), (0, 0), (1, 1)), "rows of lengths [2, 1]"),
        (lambda: Projection(((1,),), (0, 0), (1,)), "offset has 2 entries"),
        (lambda: Projection(((1,),), (0,), (-1,)), "negative size"),
        (lambda: Projection(((1.5,),), (0,), (1,)), "the matrix of a projection must be integers"),  # pyright: ignore[reportArgumentType]
        (lambda: Projection(((1,),), (0,), (1,)).project_point((1, 2)), "the projection takes rank 1"),
        (
            lambda: Projection(((1,),), (0,), (1,)).compose(Projection(((1,), (1,)), (0, 0), (1, 1))),
            "the inner one gives rank 2",
        ),
        (lambda: Projection.from_axes([Axis("affine", (Term("c", 1, True),))], (), {"k": 3}), "the size of `c`"),
    ],
)
def test_projection_refuses_what_does_not_fit(call: Callable[[], object], text: str):
    with pytest.raises(SignatureError) as error:
        call()
    assert text in str(error.value)
