"""What arrays take in a TPU's memory, as libtpu lays out the arguments of the gallery."""

from __future__ import annotations

import pytest

from tapestry_jax.memory.compilers.tiles import tiled_bytes


@pytest.mark.parametrize(
    ("shape", "itemsize", "size"),
    [
        ((128, 64), 4, 128 * 64 * 4),  # transposed, nothing is padded
        ((8, 64, 32), 4, 8 * 128 * 32 * 4),  # FSDP's piece of its weights: 64 of 128 lanes
        ((8, 256, 64), 4, 8 * 256 * 64 * 4),
        ((128, 1, 32), 4, 128 * 32 * 4),  # what is one row fills a tile of one
        ((3, 256), 4, 4 * 256 * 4),
        ((9, 256), 4, 16 * 256 * 4),
        ((9, 256), 2, 16 * 256 * 2),
        ((17, 256), 1, 32 * 256),
        ((16, 128), 8, 16 * 128 * 8),
        ((100,), 4, 400),
        ((), 4, 4),
        ((0, 128), 4, 0),
    ],
)
def test_dimensions_are_padded_to_tiles(shape, itemsize, size):
    assert tiled_bytes(shape, itemsize) == size
