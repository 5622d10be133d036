"""A program on operands of fewer cells: the same primitives, or nothing where they may be others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.claims.shrunk import shrunk
from combinators.kernels.jaxprs import as_function


def struct(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def of_many(x: Any) -> Any:
    """What says how many rows there are in shapes, inside of a call and out of it."""
    scaled = x + jnp.ones(x.shape) if len(x) > 100 else x
    return jax.nn.relu(scaled).sum(0), jax.jit(lambda y: jnp.cumsum(y.reshape(len(y), 3, 1), 0))(x), x.T @ x


def test_the_code_of_many_cells_is_run_on_few() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    program = shrunk(jax.make_jaxpr(of_many)(struct(1000, 3)), [struct(4, 3)])
    scaled = x + 1
    wanted = scaled.sum(0), np.cumsum(x.reshape(4, 3, 1), 0), x.T @ x
    for found, want in zip(as_function(program)(x), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:500].sum(0),
        lambda x: jax.lax.dynamic_index_in_dim(x, 700),
        lambda x: jnp.arange(len(x)) * x[:, 0],
        lambda x: x.reshape(500, 2, 3).sum((0, 1)),
        lambda x: jnp.broadcast_to(x[None], (2, *x.shape)).reshape(-1),
    ],
    ids=["some rows", "one row", "places", "groups", "more than there are"],
)
def test_of_other_programs_nothing_is_known(function: Any) -> None:
    assert shrunk(jax.make_jaxpr(function)(struct(1000, 3)), [struct(4, 3)]) is None


def test_two_dimensions_of_one_size_are_not_told_apart() -> None:
    program = jax.make_jaxpr(lambda x: x.sum(0))(struct(1000, 1000))
    assert shrunk(program, [struct(4, 1000)]) is None
    assert shrunk(program, [struct(4, 4)]) is not None
