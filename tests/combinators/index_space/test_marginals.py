"""Marginals and reads against neighbouring windows and enumerated blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combinators.errors import SignatureError
from combinators.index_space.box import Box
from combinators.index_space.marginals import AffineCost, Marginals, cells_read, cells_read_by
from combinators.index_space.projection import Projection

strided = st.tuples(st.integers(-4, 4), st.integers(0, 4)).map(lambda t: Projection(((t[0],),), (0,), (t[1],)))


@given(strided)
def test_marginals_count_cells_of_neighbouring_windows(projection: Projection):
    marginals = Marginals.of(projection)
    here, there = set(projection.project_point((0,)).points()), set(projection.project_point((1,)).points())
    assert marginals.overlap == ((len(here & there),),)
    # Point 0 starts at cell 0, so between the windows lie the cells of the stride that neither holds.
    stride = projection.matrix[0][0]
    between = set(range(min(0, stride), max(0, stride) + projection.shape[0]))
    if here:
        assert marginals.waste == ((len(between - {cell for (cell,) in here | there}),),)


@given(st.integers(1, 3), st.integers(0, 4), st.integers(2, 9))
def test_marginals_overlap_is_the_halo_of_a_cut(stride: int, window: int, size: int):
    projection = Projection(((stride,),), (0,), (window,))
    left, right = Box.of_shape((size,)).split(0, 2)
    halo = projection.project_box(left).intersect(projection.project_box(right))
    assert Marginals.of(projection).overlap[0][0] == halo.size


def test_marginals_of_a_scalar_have_no_entries():
    assert Marginals.of(Projection((), (), (), 2)) == Marginals(((), ()), ((), ()))


@given(st.integers(0, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_cells_read_are_the_cells_of_the_slice(size: int, stride: int, window: int, parts: int):
    projection = Projection(((stride, 0), (0, 0)), (0, 0), (window, 5))
    whole = Box.of_shape((size, 2))

    def sliced(block: Box) -> int:
        rows = [stride * y + w for y in range(block.start[0], block.stop[0]) for w in range(window)]
        return 5 * len(range(min(rows), max(rows) + 1)) if rows else 0

    assert cells_read(projection, whole) == sliced(whole)
    blocks = whole.grid((parts, 2))
    assert cells_read_by([projection, projection], blocks) == 2 * sum(sliced(block) for block in blocks)


def test_cells_read_by_an_empty_block_of_a_scalar_are_none():
    scalar = Projection((), (), (), 1)
    assert (cells_read(scalar, Box((0,), (0,))), cells_read(scalar, Box((0,), (3,)))) == (0, 1)


def test_cost_is_affine_in_every_dimension_and_free_for_empty_blocks():
    cost = AffineCost((2, 10), base=7)
    assert [cost.of(Box.of_shape(shape)) for shape in [(1, 1), (2, 1), (1, 2), (0, 5)]] == [19, 21, 29, 0]


def test_cost_refuses_a_block_of_another_rank():
    with pytest.raises(SignatureError, match="costs are known of 1 dimensions"):
        AffineCost((1,)).of(Box.of_shape((2, 2)))
