"""What kernels on TPUs take beside what they read and write, worked out by hand: bytes of 512 x 256 float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tapestry_jax.planning.pricing.counting.count import count

SIZE = 512 * 256 * 4


def beside(function: Callable[..., Any], *shapes: tuple[int, ...], platform: str = "tpu") -> float:
    structs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return count(lambda *arrays: [function(*arrays)], structs, platform).beside


def several(x: Any, y: Any) -> Any:
    return lax.reduce((x, y), (0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,))[0]


X = (512, 256)
ONE = [
    ("elementwise", lambda x: jnp.tanh(x) + 1, 0),
    ("a sum", lambda x: x.sum(0), SIZE),
    ("a sum of what is computed", lambda x: (x * x).sum(1), SIZE),
    ("two reductions of the same", lambda x: x.sum(0) + x.max(0), SIZE),
    ("places of the largest", lambda x: x.argmax(1), SIZE),
    ("a matrix by a vector", lambda x: x @ jnp.ones(256), SIZE),
    ("a vector by a matrix", lambda x: jnp.ones(512) @ x, SIZE),
    ("a matrix by a matrix", lambda x: x.T @ x, 0),
    ("prefixes", lambda x: jnp.cumsum(x, 0), 5 * SIZE),
    ("prefixes of maxima", lambda x: lax.cummax(x, 0), 5 * SIZE),
    ("one slice", lambda x: x[1:] * 2, 0),
    ("two slices", lambda x: x[1:] + x[:-1], 2 * 511 * 1024 - SIZE),
    ("two halves", lambda x: x[:256] + x[256:], 0),
    ("slices, and the whole", lambda x: (x[0] + x[1]) * x, 2 * 1024),
    ("slices of what is computed are computed again", lambda x: jnp.tanh(x)[1:] + jnp.tanh(x)[:-1], 0),
    ("pieces put together", lambda x: jnp.concatenate([x[:1], x, x[:1]]) * 2, 2 * 514 * 1024 + 2 * 1024),
    ("a loop, by its turns", lambda x: lax.scan(lambda c, row: (c + row.sum(), None), 0.0, x)[0], SIZE),
]


@pytest.mark.parametrize(("name", "function", "bytes_"), ONE, ids=[name for name, _, _ in ONE])
def test_passes_by_hand(name: str, function: Callable[..., Any], bytes_: int):
    assert beside(function, X) == bytes_
    assert beside(function, X, platform="cuda") == 0


def test_a_reduction_of_several_values_passes_over_each():
    assert beside(several, X, X) == 2 * SIZE


@pytest.mark.parametrize(("features", "lanes"), [(64, 128), (128, 128), (192, 256)])
def test_the_result_of_a_convolution_is_copied_in_lanes(features: int, lanes: int):
    def cells(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert beside(cells, (4, 18, 18, 32), (3, 3, 32, features)) == 4 * 16 * 16 * lanes * 4


@pytest.mark.parametrize(("function", "more"), [(jnp.sin, 156), (jnp.cos, 156), (jnp.tan, 170), (jnp.exp, 0)])
def test_functions_without_a_unit_take_longer_on_tpus(function: Callable[..., Any], more: int):
    structs = [jax.ShapeDtypeStruct((8, 128), jnp.float32)]
    there, elsewhere = (count(lambda x: [function(x)], structs, name) for name in ("tpu", "cuda"))
    assert (there.transcendental, there.slow, elsewhere.slow) == (1024, more * 1024, 0)
