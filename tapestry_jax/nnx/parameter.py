"""Parameters that carry dimension names, and how they start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.tensor_type import TensorType

lecun_normal: Callable[..., Any] = jax.nn.initializers.lecun_normal()
embedding_normal: Callable[..., Any] = jax.nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)
position_normal: Callable[..., Any] = jax.nn.initializers.normal(0.02)
zeros: Callable[..., Any] = jax.nn.initializers.zeros
ones: Callable[..., Any] = jax.nn.initializers.ones


def parameter(
    initializer: Callable[..., Any],
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    *,
    rngs: nnx.Rngs,
    dtype: Any = jnp.float32,
    flat: tuple[int, ...] | None = None,
) -> nnx.Param[jax.Array]:
    """Make a parameter whose metadata `dims` names its axes.

    Args:
      initializer: from `jax.nn.initializers`.
      shape: of the parameter.
      dims: the name of each axis, all different.
      rngs: whose stream `params` gives the key.
      dtype: of the parameter.
      flat: the shape that the initializer sees, where it differs.

    Raises:
      GraphError: when a name stands twice or a size is negative.
    """
    kind = TensorType.make(dims, shape, dtype)
    value = initializer(rngs.params(), flat or shape, kind.dtype)
    return nnx.Param(jnp.reshape(value, shape), dims=tuple(dims))
