"""Buffers: aligned, bounded, and read into again only when their consumer is done."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.moving.buffers import ALIGNED, Shape, aligned, frames_within


@pytest.mark.parametrize("sizes", [(), (7,), (3, 5)])
def test_aligned_begins_at_whole_lines(sizes: tuple[int, ...]) -> None:
    found = aligned(sizes, np.dtype(np.float32))
    assert found.ctypes.data % ALIGNED == 0
    assert found.shape == sizes
    assert found.flags.c_contiguous
    assert found.flags.writeable


def test_aligned_buffers_are_taken_over_without_a_copy() -> None:
    buffer = aligned((64, 64), np.dtype(np.float32))
    array = jax.device_put(buffer, jax.devices()[0])
    assert array.unsafe_buffer_pointer() == buffer.ctypes.data


def test_frames_within_fit_the_bytes() -> None:
    shapes = [Shape((1024,), np.dtype(np.float32), 2)]
    assert shapes[0].bytes == 8192
    assert [frames_within(shapes, most, 100) for most in (0, 8192, 40960, 10**9)] == [2, 2, 5, 100]
    assert frames_within(shapes, 10**9, 1) == 1


def test_stream_hands_rows_through_unharmed_by_reuse() -> None:
    x = np.arange(64 * 32, dtype=np.int32).reshape(64, 32)
    program = tp.Map(lambda a: a + 0, "row c -> row c")
    made = tp.stream(program, {"row": tp.chunks(size=2)}, x).run()
    np.testing.assert_array_equal(made, x)
