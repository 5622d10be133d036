"""The worked cases of the Tapestry documents, with their numbers, and their splits run with NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from combinators.index_space.box import Box
from combinators.index_space.cover import exact_cover
from combinators.index_space.marginals import AffineCost, Marginals, cells_read, cells_read_by
from combinators.index_space.projection import Projection
from combinators.index_space.signature import Signature


def operands(text: str, dims: str, **sizes: int) -> list[Projection]:
    return [Projection.from_axes(operand.axes, dims.split(), sizes) for operand in Signature.parse(text).operands]


def result(text: str, dims: str, **sizes: int) -> Projection:
    return Projection.from_axes(Signature.parse(text).results[0].axes, dims.split(), sizes)


# 1. Projection

CASE_1 = Projection(matrix=((1, 0), (0, 1), (1, 1)), offset=(10, 20, 30), shape=(4, 4, 1))


def test_case_1_point_projects_to_its_window():
    assert CASE_1.project_point((5, 6)) == Box.of_shape((4, 4, 1), (15, 26, 41))


def test_case_1_range_projects_to_its_bounding_box():
    assert CASE_1.project_box(Box((5, 6), (7, 8))) == Box.of_shape((5, 5, 3), (15, 26, 41))


def test_case_1_empty_range_has_size_zero():
    assert CASE_1.project_box(Box((5, 6), (5, 8))).size == 0


def test_case_1_mixed_signs_are_not_the_two_corners():
    assert Projection(((1, -1),), (0,), (1,)).project_box(Box.of_shape((3, 4))) == Box((-3,), (3,))


# 2. Marginals and costs


def test_case_2_overlap_and_waste():
    # The documents write the map index x tensor: [[1, 0, 1], [0, 2, 1]].
    marginals = Marginals.of(Projection(((1, 0), (0, 2), (1, 1)), (0, 0, 0), (1, 1, 4)))
    assert marginals.overlap == ((0, 1, 3), (1, 0, 3))
    assert marginals.waste == ((0, 0, 0), (0, 1, 0))


def test_case_2_affine_costs_of_a_block():
    block = Box.of_shape((2, 3, 5, 7))
    assert AffineCost((1, 4, 4, 128)).of(block) == 930
    assert AffineCost((1, 8, 8, 64)).of(block) == 514


# 3. Matmul at negative origins


def test_case_3_shard_reads_its_rows_and_columns():
    left, right = operands("a j, j c -> a c", "a c", j=5)
    shard = Box((5, 6), (10, 12))
    assert left.translate((-10, 0)).project_box(shard) == Box((-5, 0), (0, 5))
    assert right.project_box(shard) == Box((0, 6), (5, 12))


def test_case_3_two_by_two_split_doubles_the_input():
    both = operands("a j, j c -> a c", "a c", j=5)
    index = Box.of_shape((10, 12))
    assert cells_read_by(both, [index]) == 110
    assert cells_read_by(both, index.grid((2, 2))) == 220


def test_case_3_shards_compute_the_product():
    random = np.random.default_rng(0)
    J, K = random.integers(-9, 9, (10, 5)), random.integers(-9, 9, (5, 12))
    holds_J, holds_K = Box((-10, 0), (0, 5)), Box.of_shape((5, 12))
    left, right = operands("a j, j c -> a c", "a c", j=5)
    left = left.translate((-10, 0))
    index = Box.of_shape((10, 12))
    product = np.zeros((10, 12), int)
    for shard in index.grid((2, 2)):
        rows = J[left.project_box(shard).slices(holds_J)]
        columns = K[right.project_box(shard).slices(holds_K)]
        product[shard.slices(index)] = rows @ columns
    np.testing.assert_array_equal(product, J @ K)


# 4. Linear

LINEAR = operands("batch in, in out, out -> batch out", "batch out", **{"in": 12})
LINEAR_INDEX = Box.of_shape((100, 32))


@pytest.mark.parametrize(
    ("split", "cells"),
    [((1, 1), 1616), ((2, 1), 2032), ((1, 2), 2816), ((2, 2), 3232), ((4, 1), 2864), ((1, 4), 5216)],
)
def test_case_4_cells_read_by_a_linear_layer(split: tuple[int, int], cells: int):
    assert cells_read_by(LINEAR, LINEAR_INDEX.grid(split)) == cells


def test_case_4_best_four_shard_plan_cuts_the_batch():
    plans = [(4, 1), (2, 2), (1, 4)]
    assert min(plans, key=lambda plan: cells_read_by(LINEAR, LINEAR_INDEX.grid(plan))) == (4, 1)


def test_case_4_results_of_every_plan_cover_the_output():
    writes = result("batch in, in out, out -> batch out", "batch out")
    assert writes.is_injective_on(LINEAR_INDEX)
    for plan in [(2, 1), (2, 2), (3, 5), (1, 4)]:
        parts = [writes.project_box(block) for block in LINEAR_INDEX.grid(plan)]
        assert exact_cover(Box.of_shape((100, 32)), parts).is_exact


# 7. Convolution

CONVOLUTION = "n [c] (y+[dy]) (x+[dx]), o [c] [dy] [dx] -> n o y x"
IMAGE, FILTER = operands(CONVOLUTION, "n o y x", c=1, dy=3, dx=3)
CONVOLUTION_INDEX = Box.of_shape((100, 128, 8, 8))


@pytest.mark.parametrize(
    ("split", "cells"),
    [
        ((1, 1, 1, 1), 10000),
        ((2, 1, 1, 1), 10000),
        ((1, 1, 2, 1), 12000),
        ((1, 1, 2, 2), 14400),
        ((1, 2, 1, 1), 20000),
    ],
)
def test_case_7_image_cells_read_by_a_convolution(split: tuple[int, ...], cells: int):
    assert sum(cells_read(IMAGE, block) for block in CONVOLUTION_INDEX.grid(split)) == cells


def test_case_7_blocks_compute_the_convolution():
    random = np.random.default_rng(0)
    x, f = random.integers(-9, 9, (2, 1, 10, 10)), random.integers(-9, 9, (3, 1, 3, 3))
    index = Box.of_shape((2, 3, 8, 8))
    y = np.zeros(index.shape, int)
    for block in index.grid((2, 2, 2, 2)):
        image = x[IMAGE.project_box(block).slices(Box.of_shape(x.shape))]
        filters = f[FILTER.project_box(block).slices(Box.of_shape(f.shape))]
        windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
        y[block.slices(index)] = np.einsum("ncyxij,ocij->noyx", windows, filters)
    whole = [[signal.correlate2d(image[0], kernel[0], "valid") for kernel in f] for image in x]
    np.testing.assert_array_equal(y, whole)


# 8. Dilation

DILATED = operands("(y+2*[dy]) -> y", "y", dy=3)[0]
DENSE = operands("(y+[dy]) -> y", "y", dy=3)[0]


def test_case_8_ten_columns_give_six():
    assert DILATED.project_box(Box.of_shape((6,))) == Box.of_shape((10,))
    assert DILATED.project_box(Box.of_shape((7,))) != Box.of_shape((10,))


def test_case_8_interleaved_shards_read_ten_columns_and_contiguous_ones_fourteen():
    assert sum(cells_read(DILATED, block) for block in Box.of_shape((6,)).split(0, 2)) == 14
    # Outputs 2y + p read columns 2(y + dy) + p: dense in the columns of one parity.
    assert sum(cells_read(DENSE, Box.of_shape((3,))) for _parity in range(2)) == 10


def test_case_8_even_and_odd_dense_convolutions_interleave_to_the_dilated_one():
    random = np.random.default_rng(0)
    columns, kernel = random.integers(-9, 9, 10), random.integers(-9, 9, 3)
    dilated_kernel = np.zeros(5, int)
    dilated_kernel[::2] = kernel
    whole = np.correlate(columns, dilated_kernel, "valid")
    interleaved = np.zeros(6, int)
    for parity in range(2):
        held = columns[parity::2]
        read = held[DENSE.project_box(Box.of_shape((3,))).slices(Box.of_shape(held.shape))]
        interleaved[parity::2] = np.correlate(read, kernel, "valid")
    np.testing.assert_array_equal(interleaved, whole)
