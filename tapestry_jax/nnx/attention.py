"""Multi-head self-attention: a fold over the keys."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_flag
from combinators.errors import GraphError, message
from combinators.leaves.attention import attention
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.projections.linear import LinearGeneral


class MultiHeadAttention(Module):
    """Self-attention of several heads, as `flax.nnx.MultiHeadAttention` with `decode=False`.

    Queries carry `seq`, keys and values the same tensor's axis under the name `keys`, the fold dimension: cut in time
    it is FlashAttention, on a mesh axis ring attention.

    Args:
      num_heads: the heads.
      in_features: size of `embed`.
      qkv_features: total over the heads, by default `in_features`.
      num_key_value_heads: heads of keys and values, where several heads of queries share one (grouped queries). The
        kernels of `query` and `out` then have the axes `heads` and `group` for the heads.
      causal: whether a position sees only itself and what comes before it.
      use_bias: whether the projections add biases.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when the heads do not divide the features, or heads of keys those of queries.
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        qkv_features: int | None = None,
        *,
        num_key_value_heads: int | None = None,
        causal: bool = True,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        own = "of MultiHeadAttention"
        num_heads, in_features = (
            read_count(num_heads, f"num_heads= {own}"),
            read_count(in_features, f"in_features= {own}"),
        )
        features = in_features if qkv_features is None else read_count(qkv_features, f"qkv_features= {own}")
        causal = read_flag(causal, f"causal= {own}")
        if features % num_heads:
            raise GraphError(
                message(
                    f"{features} features do not make {num_heads} heads of one size",
                    remedy="Choose a number of heads that divides the features.",
                )
            )
        shared = num_heads
        if num_key_value_heads is not None:
            shared = read_count(num_key_value_heads, f"num_key_value_heads= {own}")
        if num_heads % shared:
            raise GraphError(
                message(
                    f"{shared} heads of keys cannot be shared evenly by {num_heads} heads of queries",
                    remedy="Choose a num_key_value_heads= that divides num_heads=.",
                )
            )
        self.num_heads, self.in_features, self.causal = num_heads, in_features, causal
        self.num_key_value_heads = shared
        self.head_dim = features // num_heads
        heads, names = (num_heads, self.head_dim), ("heads", "head_dim")
        linear = partial(LinearGeneral, use_bias=use_bias, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        rows, row_names = heads, names
        if shared != num_heads:
            heads = (shared, self.head_dim)
            rows, row_names = (shared, num_heads // shared, self.head_dim), ("heads", "group", "head_dim")
        self.query = linear(in_features, rows, dims=("embed", row_names))
        self.key = linear(in_features, heads, dims=("embed", names))
        self.value = linear(in_features, heads, dims=("embed", names))
        self.out = linear(rows, in_features, dims=(row_names, "embed"))

    @property
    def signature(self) -> str:
        """Positions and features come last."""
        return "... seq embed -> ... seq embed"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `embed`."""
        return {"embed": self.in_features}

    def forward(self, x: Value) -> Value:
        """Project, attend, project back."""
        other = x.rename(seq="keys")
        y = attention(self.query(x), self.key(other), self.value(other), causal="seq" if self.causal else False)
        return self.out(y)
