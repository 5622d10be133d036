"""A decoder-only transformer."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import is_whole, read_flag
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.recording.value import Value
from tapestry_jax.nnx.attention import MultiHeadAttention
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.norms.layer_norm import LayerNorm
from tapestry_jax.nnx.options import read_dtypes, read_rngs
from tapestry_jax.nnx.projections.embed import Embed, PositionEmbed
from tapestry_jax.nnx.projections.linear import Linear
from tapestry_jax.nnx.projections.mlp import MLP
from tapestry_jax.nnx.stack import Stack

_DERIVED = ("mlp", "num_key_value_heads")
"""Sizes that follow from the others where they are not given."""


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a transformer.

    Attributes:
      layers: how many blocks.
      embed: size of the residual stream.
      heads: of each attention; they divide `embed`.
      vocab: how many tokens there are.
      mlp: hidden size of each block, by default `4 * embed`.
      max_len: how many positions are learned.
      use_bias: whether projections of the blocks add biases.
      dtype: of the computation; by default that of the parameters.
      param_dtype: of the parameters.
      stacked: whether the blocks are one `Stack`, whose parameters have a leading dimension `layer`: one block is
        traced, planned and compiled for all. The same `rngs` give the same weights.
      num_key_value_heads: heads of keys and values, where several heads of queries share one; by default `heads`.

    Raises:
      GraphError: when a size is not positive, the heads do not divide `embed`, or heads of keys those of queries.
    """

    layers: int
    embed: int
    heads: int
    vocab: int
    mlp: int | None = None
    max_len: int = 1024
    use_bias: bool = True
    dtype: Any = None
    param_dtype: Any = jnp.float32
    stacked: bool = False
    num_key_value_heads: int | None = None

    def __post_init__(self) -> None:
        own = "of TransformerConfig"
        names = [*(field.name for field in fields(self)[:6]), "num_key_value_heads"]
        sizes: dict[str, Any] = {name: getattr(self, name) for name in names}
        sizes = {name: size for name, size in sizes.items() if size is not None or name not in _DERIVED}
        fits = {name: is_whole(size) and size >= 1 for name, size in sizes.items()}
        wrong = [f"{name} is {size!r:.40}, expected at least 1" for name, size in sizes.items() if not fits[name]]
        if not wrong and self.embed % self.heads:
            wrong.append(f"heads is {self.heads}, which does not divide embed, {self.embed}")
        if not wrong and self.heads % sizes.get("num_key_value_heads", 1):
            wrong.append(
                f"num_key_value_heads is {self.num_key_value_heads}, which does not divide heads, {self.heads}"
            )
        if wrong:
            raise GraphError(message("TransformerConfig: no such transformer", *wrong, remedy="Choose other sizes."))
        for name, size in sizes.items():
            object.__setattr__(self, name, int(size))
        object.__setattr__(self, "use_bias", read_flag(self.use_bias, f"use_bias= {own}"))
        object.__setattr__(self, "stacked", read_flag(self.stacked, f"stacked= {own}"))
        read_dtypes(self.dtype, self.param_dtype, own)

    @property
    def hidden(self) -> int:
        """The size of `mlp`."""
        return 4 * self.embed if self.mlp is None else self.mlp


class Block(Module):
    """One layer: `x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.features = config.embed
        self.attention_norm = LayerNorm(config.embed, **dtypes)
        shared: Any = {"num_key_value_heads": config.num_key_value_heads, "use_bias": config.use_bias}
        self.attention = MultiHeadAttention(config.heads, config.embed, **shared, **dtypes)
        self.mlp_norm = LayerNorm(config.embed, **dtypes)
        self.mlp = MLP(config.embed, config.hidden, use_bias=config.use_bias, **dtypes)

    @property
    def signature(self) -> str:
        """Positions and features come last."""
        return "... seq embed -> ... seq embed"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `embed`."""
        return {"embed": self.features}

    def forward(self, x: Value) -> Value:
        """Attend, then transform every position, both on top of `x`."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(Module):
    """Tokens to logits: token and position vectors, pre-norm causal blocks, a norm and an untied linear head.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.
    """

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.config = config
        self.embed = Embed(config.vocab, config.embed, **dtypes)
        self.positions = PositionEmbed(config.max_len, config.embed, **dtypes)
        self.decoder: nnx.List[Block] | Stack = _blocks(config, rngs)
        self.norm = LayerNorm(config.embed, **dtypes)
        self.head = Linear(config.embed, config.vocab, dims=("embed", "vocab"), use_bias=False, **dtypes)

    @property
    def signature(self) -> str:
        """Token numbers to logits."""
        return "... seq -> ... seq vocab"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `vocab`."""
        return {"vocab": self.config.vocab}

    def forward(self, tokens: Value) -> Value:
        """Logits of the next token at every position.

        Raises:
          SignatureError: when tokens are not integers, or there are more than `max_len` positions.
        """
        x = self.embed(tokens) + self.positions(tokens)
        blocks = [self.decoder] if isinstance(self.decoder, Stack) else self.decoder
        for block in blocks:
            x = block(x)
        return self.head(self.norm(x))


def _blocks(config: TransformerConfig, rngs: nnx.Rngs) -> nnx.List[Block] | Stack:
    if config.stacked:
        return Stack.of(lambda rngs: Block(config, rngs=rngs), config.layers, rngs=rngs)
    return nnx.List([Block(config, rngs=rngs) for _ in range(config.layers)])


def _check(config: Any, rngs: Any, name: str) -> None:
    if not isinstance(config, TransformerConfig):
        details = ("expected a TransformerConfig", f"got {type(config).__name__}: {config!r:.80}")
        remedy = "Pass TransformerConfig(layers=2, embed=64, heads=4, vocab=256)."
        raise GraphError(message(f"config= of {name} is not what it should be", *details, remedy=remedy))
    read_rngs(rngs, f"of {name}")
