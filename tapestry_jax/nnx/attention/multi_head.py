"""Multi-head attention: a fold over the keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_flag, read_number
from combinators.errors import GraphError, message, spelt
from combinators.index_space.tensor_type import TensorType
from combinators.leaves import random
from combinators.leaves.attention import attention
from combinators.leaves.index import index
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.attention.cache import Within, positions_after, put_rows, visible
from tapestry_jax.nnx.attention.positions import RotaryScaling, rotary
from tapestry_jax.nnx.dropout import drawn_key
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.norms.layer import LayerNorm
from tapestry_jax.nnx.options import read_rngs
from tapestry_jax.nnx.projections.linear import LinearGeneral


class MultiHeadAttention(Module):
    """Attention of several heads, as `flax.nnx.MultiHeadAttention` with `decode=False`.

    Queries carry `seq`, keys and values the axis `keys`, of the same tensor or of another: the fold dimension, cut in
    time it is FlashAttention, on a mesh axis ring attention. Operands are `x`, with `cross` the tensor that keys and
    values are made of, with `masked` a mask: `attend(x, memory, mask)`.

    Args:
      num_heads: the heads.
      in_features: size of `embed`.
      qkv_features: total over the heads, by default `in_features`.
      num_key_value_heads: heads of keys and values, where several heads of queries share one (grouped queries). The
        kernels of `query` and `out` then have the axes `heads` and `group` for the heads.
      causal: whether a position sees only itself and what comes before it; with `cross` it sees all.
      cross: whether keys and values are made of another tensor, whose positions are `keys`.
      masked: whether a mask comes last, bool `(..., seq, keys)`: False hides. A position that sees no key attends to
        zeros; Flax gives it the mean of the values.
      in_kv_features: size of the last axis of that other tensor, by default `in_features`; where it is another size
        the axis is called `kv_embed`.
      rotary_base: base of the wavelengths of rotary positions of queries and keys; None turns nothing.
      rotary_scaling: how the rotary positions are slowed down, or None.
      dropout_rate: the share of weights that are set to zero behind the softmax. Which ones follows from the key, the
        number of the call and the coordinates: the same on every mesh. The layer counts its calls; a cache drops none.
      broadcast_dropout: whether the same weights are left out in all heads and along the leading dimensions.
      deterministic: whether none are.
      normalize_qk: whether queries and keys are normalised by a `LayerNorm` without bias, `query_ln` and `key_ln`.
      use_bias: whether the projections add biases.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when the heads do not divide the features, or heads of keys those of queries, or features of a head
        that are turned are odd.
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        qkv_features: int | None = None,
        *,
        num_key_value_heads: int | None = None,
        causal: bool = True,
        cross: bool = False,
        masked: bool = False,
        in_kv_features: int | None = None,
        rotary_base: float | None = None,
        rotary_scaling: RotaryScaling | None = None,
        dropout_rate: float = 0.0,
        broadcast_dropout: bool = True,
        deterministic: bool = False,
        normalize_qk: bool = False,
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
        self.cross, self.masked = read_flag(cross, f"cross= {own}"), read_flag(masked, f"masked= {own}")
        causal = read_flag(causal, f"causal= {own}") and not self.cross
        self.in_kv_features = (
            in_features if in_kv_features is None else read_count(in_kv_features, f"in_kv_features= {own}")
        )
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
        self.rotary_base = _read_base(rotary_base, self.head_dim, own)
        self.rotary_scaling = _read_scaling(rotary_scaling, own)
        heads, names = (num_heads, self.head_dim), ("heads", "head_dim")
        linear = partial(LinearGeneral, use_bias=use_bias, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        rows, row_names = heads, names
        if shared != num_heads:
            heads = (shared, self.head_dim)
            rows, row_names = (shared, num_heads // shared, self.head_dim), ("heads", "group", "head_dim")
        self.query = linear(in_features, rows, dims=("embed", row_names))
        self.kv_dim = "embed" if self.in_kv_features == in_features else "kv_embed"
        self.key = linear(self.in_kv_features, heads, dims=(self.kv_dim, names))
        self.value = linear(self.in_kv_features, heads, dims=(self.kv_dim, names))
        self.out = linear(rows, in_features, dims=(row_names, "embed"))
        self.dropout_rate = read_number(dropout_rate, f"dropout_rate= {own}")
        if not 0 <= self.dropout_rate < 1:
            remedy = "Pass a number from 0 to 1, which leaves some weights."
            raise GraphError(message(f"dropout_rate= {own} is no share", f"got {dropout_rate!r}", remedy=remedy))
        self.broadcast_dropout = read_flag(broadcast_dropout, f"broadcast_dropout= {own}")
        self.deterministic = read_flag(deterministic, f"deterministic= {own}")
        self.cached_key: nnx.Cache[Any] | None = nnx.data(None)
        self.cached_value: nnx.Cache[Any] | None = nnx.data(None)
        self.cache_index: nnx.Cache[Any] | None = nnx.data(None)
        self.query_ln: LayerNorm | None = nnx.data(None)
        self.key_ln: LayerNorm | None = nnx.data(None)
        if read_flag(normalize_qk, f"normalize_qk= {own}"):
            norm = partial(LayerNorm, use_bias=False, dims=("head_dim",), dtype=dtype, param_dtype=param_dtype)
            self.query_ln, self.key_ln = norm(self.head_dim, rngs=rngs), norm(self.head_dim, rngs=rngs)
        self.rngs: nnx.RngStream | None = nnx.data(
            read_rngs(rngs, own)["dropout"].fork() if self.dropout_rate else None
        )

    @property
    def signature(self) -> str:
        """Positions and features come last."""
        memory = f", ... keys {self.kv_dim}" if self.cross else ""
        return f"... seq embed{memory}{', ... seq keys' if self.masked else ''} -> ... seq embed"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `embed`, and of what keys are made of."""
        return {"embed": self.in_features} | ({self.kv_dim: self.in_kv_features} if self.cross else {})

    def forward(self, x: Value, *others: Value) -> Value:
        """Project, normalise and turn where asked to, attend, project back: `(..., seq, in_features)` comes back."""
        mask = others[-1] if self.masked else None
        if self.cache_index is not None:
            return self._decoded(x, self.cache_index, mask)
        other = others[0] if self.cross else x
        other = other.rename(seq="keys") if "keys" not in other.names else other
        query, key = self._normalized(self.query(x), self.key(other))
        if self.rotary_base is not None:
            turns = (self.rotary_base, self.rotary_scaling)
            query, key = rotary(query, "seq", *turns), rotary(key, "keys", *turns)
        left = self._left(query, key)
        y = attention(query, key, self.value(other), causal="seq" if self.causal else False, mask=mask, **left)
        return self.out(y)

    def cache_types(self, leading: Sequence[tuple[str, int]], length: int, dtype: Any) -> dict[str, TensorType]:
        """The variables of a cache, by attribute; none where keys are made of another tensor.

        Args:
          leading: names and sizes of the dimensions before the positions.
          length: the largest number of positions.
          dtype: of keys and values.

        Raises:
          GraphError: when a position sees those behind it.
        """
        if self.cross:
            return {}
        if not self.causal:
            remedy = "Make it with causal=True, or leave the cache out."
            told = "what it gave for earlier positions depends on later ones"
            raise GraphError(message("attention that is not causal cannot decode", told, remedy=remedy))
        kind = [*leading, ("keys", length), ("heads", self.num_key_value_heads), ("head_dim", self.head_dim)]
        rows = TensorType(kind, dtype)
        return {"cached_key": rows, "cached_value": rows, "cache_index": TensorType([], jnp.int32)}

    def _left(self, query: Value, key: Value) -> dict[str, Any]:
        """Which weights are kept in this call."""
        if self.rngs is None or self.deterministic:
            return {}
        sizes = dict(zip(query.settle().names[:-1], query.shape, strict=False))
        sizes = {"seq": sizes["seq"]} if self.broadcast_dropout else sizes
        like = TensorType([*sizes.items(), ("keys", key.shape[key.axis("keys")])])
        share = 1 - self.dropout_rate
        return {"kept": random.bernoulli(drawn_key(self.rngs), share, like=like), "share": share}

    def _normalized(self, query: Value, key: Value) -> tuple[Value, Value]:
        if self.query_ln is None or self.key_ln is None:
            return query, key
        return self.query_ln(query), self.key_ln(key)

    def _decoded(self, x: Value, count: Any, mask: Value | None) -> Value:
        """Attend to what was seen before, and to `x`, which is written behind it."""
        cached: Any = (self.cached_key, self.cached_value)
        positions = positions_after(count[...], "seq", x)
        query, key = self._normalized(self.query(x), self.key(x))
        if self.rotary_base is not None:
            turns = (self.rotary_base, self.rotary_scaling, positions)
            query, key = (rotary(each, "seq", *turns) for each in (query, key))
        for kept, rows in zip(cached, (key, self.value(x)), strict=True):
            kept[...] = put_rows(kept[...], rows, count[...])
        keys, values = (kept[...] for kept in cached)
        seen = Map(visible, "q, k -> q k", name="visible")(positions, index("keys", keys))
        seen = seen if mask is None else mask & seen
        y = self.out(attention(query, keys, values, mask=seen))
        count[...] = count[...] + x.shape[x.axis("seq")]
        return Map(Within(keys.shape[keys.axis("keys")]), "... s e, s -> ... s e", name="within")(y, positions)


def _read_base(base: Any, head_dim: int, own: str) -> float | None:
    """The base of rotary positions, for heads whose features make pairs."""
    if base is None:
        return None
    number = read_number(base, f"rotary_base= {own}")
    if number <= 0 or head_dim % 2:
        details = (f"rotary_base is {spelt(base, 40)}, and a head has {head_dim} features",)
        remedy = "Pass a positive base such as 10000.0, and heads with an even number of features."
        raise GraphError(message(f"no rotary positions {own}", *details, remedy=remedy))
    return number


def _read_scaling(scaling: Any, own: str) -> RotaryScaling | None:
    """How rotary positions are slowed down."""
    if scaling is None or isinstance(scaling, RotaryScaling):
        return scaling
    details = ("expected a RotaryScaling, or None", f"got {type(scaling).__name__}: {spelt(scaling)}")
    remedy = "Pass tp.nnx.RotaryScaling(8.0, original=8192)."
    raise GraphError(message(f"rotary_scaling= {own} is not what it should be", *details, remedy=remedy))
