"""Doubles where they are enabled, halves and bfloat16: beside NumPy's doubles, by the digits of each type."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.gpu.held import assert_planned, normal
from tests.gpu.test_in_time import attention, cross_entropy, deep, linear, mlp, scans

pytestmark = pytest.mark.gpu

SHAPES: dict[str, tuple[Any, tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "mlp": (mlp, ((24, 16), (16, 32), (32, 16)), {"batch": tp.chunks(3), "mlp": tp.chunks(2)}),
    "layers": (deep, ((24, 16), (4, 16, 32), (4, 32, 16)), {"batch": ("data", tp.chunks(2))}),
    "attention": (attention, ((4, 64, 16), (4, 96, 16), (4, 96, 16)), {"keys": tp.chunks(5)}),
    "scans": (scans, ((100, 6), (100, 6)), {"t": tp.chunks(6)}),
}
DIGITS = {"float16": 4e-3, "bfloat16": 3e-2}


@pytest.mark.parametrize("name", SHAPES)
def test_doubles(name: str, mesh: Any) -> None:
    program, shapes, entries = SHAPES[name]
    with jax.enable_x64(True):
        args = [normal(*shape, dtype=np.float64, scale=0.4, seed=at) for at, shape in enumerate(shapes)]
        assert_planned(program, args, mesh, entries, tolerance=1e-12)


@pytest.mark.parametrize("dtype", DIGITS)
@pytest.mark.parametrize("name", SHAPES)
def test_halves(name: str, dtype: str, mesh: Any) -> None:
    program, shapes, entries = SHAPES[name]
    args = [normal(*shape, dtype=dtype, scale=0.4, seed=at) for at, shape in enumerate(shapes)]
    assert_planned(program, args, mesh, entries, tolerance=DIGITS[dtype])


def test_sums_of_halves_in_chunks_are_kept_in_float32(mesh: Any) -> None:
    # 4,096 ones: a sum in bfloat16 stops at 256, one in float16 is exact here and overflows beyond 65,504.
    ones = tp.trace(linear, *(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((2, 4096), (4096, 2))))
    run = tp.plan(ones, mesh, {"k": tp.chunks(64)}, accumulate="float32").compile()
    found = run(jnp.ones((2, 4096), jnp.bfloat16), jnp.ones((4096, 2), jnp.bfloat16))
    np.testing.assert_array_equal(np.asarray(found, np.float32), 4096)


def test_a_loss_of_halves_in_chunks(mesh: Any) -> None:
    args = normal(48, 32, dtype="bfloat16"), normal(32, 96, dtype="bfloat16", scale=0.2)
    targets = np.arange(48, dtype=np.int32) % 96
    assert_planned(cross_entropy, (*args, targets), mesh, {"vocab": tp.chunks(6)}, tolerance=3e-2)
