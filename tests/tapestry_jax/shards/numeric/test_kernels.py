"""Kernels are traced once for the shapes of their blocks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.operations.execute import run_blocks
from tapestry_jax.shards.numeric.kernels import Kernels
from tests.tapestry_jax.shards.examples import matmul


def test_kernels_are_traced_once_for_blocks_of_a_shape() -> None:
    traced: list[Any] = []

    def part(shaped: Any, blocks: Any) -> Any:
        traced.append(blocks[0].shape)
        return run_blocks(shaped, blocks)

    def product(rows: int, *shape: int) -> Any:
        structs = jax.ShapeDtypeStruct((rows, 4), "float32"), jax.ShapeDtypeStruct((4, 5), "float32")
        return Kernels(matmul.operation, structs).run(part, [np.ones(shape, np.float32), np.ones((4, 5), np.float32)])

    (block,) = product(8, 2, 4)
    np.testing.assert_array_equal(block, np.full((2, 5), 4, np.float32))
    product(8, 2, 4)
    product(6, 2, 4)  # A block of a tensor of another size.
    product(8, 3, 4)
    assert traced == [(2, 4), (3, 4)]


def test_kernels_are_traced_anew_where_jax_has_doubles() -> None:
    kernels = Kernels(matmul.operation, (jax.ShapeDtypeStruct((2, 2), "float32"),) * 2)
    single = kernels.run(_doubled, [np.ones((2, 2), np.float32)])
    with jax.enable_x64(True):
        double = kernels.run(_doubled, [np.ones((2, 2), np.float32)])
    assert single[0].dtype == np.float32 and double[0].dtype == np.float64


def _doubled(_: Any, leaves: Any) -> Any:
    return [leaves[0] + jnp.arange(2, dtype=float)]
