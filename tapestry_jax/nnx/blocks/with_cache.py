"""Models that decode: copies of models, whose layers keep what they saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_dimension
from combinators.errors import GraphError, message
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.nnx.blocks.stack import Stack
from tapestry_jax.nnx.options import read_float_dtype


def with_cache(model: Any, batch: int | Mapping[str, int], length: int, *, dtype: Any = jnp.float32) -> Any:
    """A copy of a model that decodes: each call goes on behind the positions that calls before it saw.

    The copy shares the arrays of the parameters. Its layers have variables of the class `nnx.Cache` besides, which a
    call writes: keys, values and the number of positions of attention, that number of `PositionEmbed`. A call may take
    one position or several (a prompt). Behind `length` positions results are NaN. A layer that mixes positions of one
    call and keeps none, whoever wrote it, is refused by a call, or when the copy is traced.

    Args:
      model: a module of ours.
      batch: size of the leading dimension, `batch`, or sizes of leading dimensions by name.
      length: the largest number of positions.
      dtype: of keys and values.

    Raises:
      GraphError: when nothing in the model keeps a cache, a layer of it sees what comes later, has fewer positions, or
        has a state that no cache keeps.

    Example:
      >>> from tapestry_jax.nnx.attention.multi_head import MultiHeadAttention
      >>> layer = MultiHeadAttention(2, 8, rngs=nnx.Rngs(0))
      >>> decoder = with_cache(layer, 3, 16)
      >>> decoder.cached_key.shape
      (3, 16, 2, 4)
      >>> decoder(jnp.ones((3, 5, 8))).shape, decoder.cache_index[...].item()
      ((3, 5, 8), 5)
    """
    leading = _read_leading(batch)
    length = read_count(length, "length= of with_cache")
    dtype = read_float_dtype(jnp.float32 if dtype is None else dtype, "dtype= of with_cache")
    made: Any = nnx.merge(*nnx.split(model))
    parts = dict(nnx.iter_modules(made))
    is_cached = False
    for path, part in parts.items():
        types: Callable[..., dict[str, TensorType]] | None = getattr(part, "cache_types", None)
        if types is None:
            continue
        around = [
            (above.over, above.length)
            for at, above in parts.items()
            if isinstance(above, Stack) and path[: len(at)] == at
        ]
        for name, kind in types(leading, length, dtype).items():
            setattr(part, name, _zeros(around, kind))
            is_cached = True
    if not is_cached:
        details = (f"got {type(model).__name__}", "what is cached are causal attention and positions")
        raise GraphError(message("with_cache: nothing in the model keeps a cache", *details, remedy="Pass a decoder."))
    return made


def _zeros(around: Any, kind: TensorType) -> nnx.Cache[Any]:
    names, sizes = [name for name, _ in around], [size for _, size in around]
    return nnx.Cache(jnp.zeros((*sizes, *kind.shape), kind.dtype), dims=(*names, *kind.names))


def _read_leading(batch: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(batch, Mapping):
        return (("batch", read_count(batch, "batch= of with_cache")),)
    own = "batch= of with_cache"
    return tuple((read_dimension(name, f"a name in {own}"), read_count(size, own)) for name, size in batch.items())
