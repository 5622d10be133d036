"""What layers of images refuse, and the cells that windows of a few sizes read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.images.windows import windows_of

IMAGE = np.ones((2, 5, 4, 3), np.float32)


def conv(**options: Any) -> tp.nnx.Conv:
    return tp.nnx.Conv(**({"in_features": 3, "out_features": 2, "kernel_size": (3, 3), "rngs": nnx.Rngs(0)} | options))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: conv(padding="CAUSAL"), "padding= of Conv is CAUSAL for an image of 2 axes"),
        (lambda: conv(padding="WIDE"), "expected one of SAME, VALID, CAUSAL, CIRCULAR, REFLECT, or a pair"),
        (lambda: conv(kernel_size=(1, 1, 1, 1)), "kernel_size= of Conv is that of no image"),
        (lambda: conv(strides=(1, 2, 3)), "strides= of Conv are not what they should be"),
        (lambda: conv(feature_group_count=2), "2 groups do not divide the features of Conv"),
        (lambda: conv(padding="VALID")(IMAGE[:, :2]), "Conv: no window fits"),
        (lambda: conv()(IMAGE[..., :2]), "Conv: the input has other channels"),
        (lambda: conv()(IMAGE[0, 0]), "expected 3 or more axes, got 2"),
        (
            lambda: tp.nnx.max_pool(IMAGE, (2, 2), padding=((2, 0), (0, 0))),
            "may hold padding alone",
        ),
        (lambda: tp.nnx.avg_pool(IMAGE.astype(int), (2, 2)), "avg_pool averages floats"),
        (lambda: tp.nnx.max_pool(IMAGE[0, 0, 0], (2,)), "max_pool: the input is no image"),
    ],
)
def test_images_that_do_not_fit_are_told(call: Any, told: str) -> None:
    with pytest.raises(tp.TapestryError, match=told):
        call()


@pytest.mark.parametrize("kind", [tp.nnx.Conv, tp.nnx.ConvTranspose])
def test_channels_of_another_name_are_told_what_to_name(kind: Any) -> None:
    first, second = (kind(4, 4, (3,), rngs=nnx.Rngs(0)) for _ in range(2))
    image = tp.TensorType({"x": 5, "channels": 4})
    told = r'the channels of the input have another name\n.*channels=4 last\n.*\n.*dims=\("features", ...\)'
    with pytest.raises(tp.CompositionError, match=told):
        tp.trace(tp.nnx.Sequential(first, second), image)
    renamed = tp.trace(tp.nnx.Sequential(first, lambda x: x.rename(features="channels"), second), image)
    assert repr(renamed).endswith("-> y float32(x=5, features=4))")


@pytest.mark.parametrize(
    ("padding", "expected"),
    [("VALID", (0, 3)), ("SAME", (2, 5)), ("CAUSAL", (4, 5)), ("CIRCULAR", (2, 5)), (((3, 1),), (3, 5))],
)
def test_windows_begin_before_the_tensor_by_their_padding(padding: Any, expected: tuple[int, int]) -> None:
    (window,) = windows_of((9,), (3,), (2,), (2,), padding, "here")
    assert (window.low, window.out) == expected


def test_whole_numbers_are_pooled() -> None:
    numbers = np.arange(12).reshape(1, 6, 2)
    np.testing.assert_array_equal(tp.nnx.max_pool(numbers, (3,)), numbers[:, 2:])
    np.testing.assert_array_equal(tp.nnx.min_pool(numbers, 3), numbers[:, :-2])


@pytest.mark.parametrize(
    ("length", "size", "stride", "padding"),
    [(1, 3, 2, ((0, 0),)), (0, 3, 2, "SAME"), (0, 3, 2, "VALID"), (0, 1, 2, ((0, 0),)), (0, 2, 1, ((3, 3),))],
)
def test_transposed_convolutions_of_few_cells_are_those_of_flax(
    length: int, size: int, stride: int, padding: Any
) -> None:
    """No cell that goes out, and cells that go out of none that came in."""
    x = np.ones((2, length, 3), np.float32)
    ours, theirs = (
        library.ConvTranspose(3, 2, (size,), stride, padding=padding, rngs=nnx.Rngs(0))(x) for library in (tp.nnx, nnx)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
