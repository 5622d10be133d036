"""What arrays take in a TPU's memory, as libtpu lays out the arguments of the gallery."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers.tiles import tiled_bytes


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((128, 64), "float32", 128 * 64 * 4),  # transposed, nothing is padded
        ((8, 64, 32), "float32", 8 * 128 * 32 * 4),  # FSDP's piece of its weights: 64 of 128 lanes
        ((8, 256, 64), "float32", 8 * 256 * 64 * 4),
        ((128, 1, 32), "float32", 128 * 32 * 4),  # what is one row fills a tile of one
        ((3, 256), "float32", 4 * 256 * 4),
        ((9, 256), "float32", 16 * 256 * 4),
        ((9, 256), "bfloat16", 16 * 256 * 2),
        ((17, 256), "int8", 32 * 256),
        ((16, 128), "float64", 16 * 128 * 8),
        ((100,), "float32", 400),
        ((), "float32", 4),
        ((0, 128), "float32", 0),
        ((16, 256), "int4", 16 * 256 // 2),
        ((60, 256), "int4", 64 * 256 // 2),
        ((3,), "int4", 2),
    ],
)
def test_dimensions_are_padded_to_tiles(shape, dtype, size):
    assert tiled_bytes(shape, jnp.dtype(dtype)) == size
