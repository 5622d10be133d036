"""Parameters that carry dimension names, how they start, and the dtype in which they are used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.errors import GraphError, message
from combinators.index_space.tensor_type import TensorType
from combinators.recording.reorder import astype

lecun_normal: Callable[..., Any] = jax.nn.initializers.lecun_normal()
he_uniform: Callable[..., Any] = jax.nn.initializers.he_uniform()
embedding_normal: Callable[..., Any] = jax.nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)
position_normal: Callable[..., Any] = jax.nn.initializers.normal(0.02)
zeros: Callable[..., Any] = jax.nn.initializers.zeros
ones: Callable[..., Any] = jax.nn.initializers.ones


def orthogonal(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """An orthogonal matrix as `jax.nn.initializers.orthogonal` draws it; narrower than float32 it is rounded from that.

    No matrix of 16 bits has a QR decomposition in XLA.

    Source: Saxe, McClelland and Ganguli 2014.
    """
    wide = jnp.promote_types(dtype, jnp.float32)
    return jax.nn.initializers.orthogonal()(key, shape, wide).astype(dtype)


def default_orthogonal(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """The same drawn in JAX's default dtype and rounded, whatever `dtype` is: so with 64 bits other numbers."""
    return jax.nn.initializers.orthogonal()(key, shape).astype(dtype)


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
      GraphError: when a name stands twice, a size is negative or too large, or the initializer gives no such array.
    """
    kind = TensorType.make(dims, shape, dtype)
    if math.prod(shape) >= 2**63:
        raise GraphError(message("a parameter is too large", f"got {kind}", remedy="Choose smaller sizes."))
    try:
        value = jnp.reshape(drawn(initializer, rngs, flat or shape, kind.dtype), shape)
    except TypeError as error:
        details = (f"of {kind}", f"{type(error).__name__}: {error}"[:200])
        remedy = "Pass a function of key, shape and dtype, such as those of jax.nn.initializers."
        raise GraphError(message("an initializer gives no parameter", *details, remedy=remedy)) from error
    return nnx.Param(value, dims=tuple(dims))


def drawn(initializer: Callable[..., Any], rngs: nnx.Rngs, shape: tuple[int, ...], dtype: Any) -> Any:
    """What an initializer gives for the next key."""
    return initializer(_key(rngs), shape, dtype)


def _key(rngs: nnx.Rngs) -> jax.Array:
    """The next key of the stream `params`, as the stream itself gives it.

    Where a module is traced, a stream that counts on asks the count for its sharding, and JAX answers in an error
    whose text is read off all equations so far: the time for many parameters grew with their square. Here it is not
    asked.
    """
    stream: Any = rngs.params
    if not isinstance(stream, nnx.RngStream):
        return stream()
    count: Any = stream.count.get_raw_value()
    if not isinstance(count, jax.Array) or hasattr(jax.typeof(count), "inner_aval"):
        return stream()  # counted in a reference, or nowhere yet
    key = jax.random.fold_in(stream.key[...], count)
    stream.count.set_raw_value(count + 1)
    return key


def cast(value: Any, dtype: Any) -> Any:
    """A parameter, or what meets it, in `dtype`; itself where it has it, or where `dtype` is None."""
    return value if dtype is None else astype(value, dtype)
