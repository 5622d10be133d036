"""A decoder-only transformer."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import is_whole, read_flag, read_number
from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.nnx.attention.multi_head import MultiHeadAttention
from tapestry_jax.nnx.blocks.language_model import LanguageModel
from tapestry_jax.nnx.blocks.repeated import make_blocks
from tapestry_jax.nnx.blocks.residual import Residual
from tapestry_jax.nnx.norms.layer import LayerNorm
from tapestry_jax.nnx.options import read_dtypes, read_rngs
from tapestry_jax.nnx.projections.embed import Embed, PositionEmbed
from tapestry_jax.nnx.projections.linear import Linear
from tapestry_jax.nnx.projections.mlp import MLP

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
      epsilon: added to the variances of the norms.
      tied: whether the token vectors are the head, too.

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
    epsilon: float = 1e-6
    tied: bool = False

    def __post_init__(self) -> None:
        own = f"of {type(self).__name__}"
        names = [*(field.name for field in fields(TransformerConfig)[:6]), "num_key_value_heads"]
        sizes: dict[str, Any] = {name: getattr(self, name) for name in names}
        sizes = {name: size for name, size in sizes.items() if size is not None or name not in _DERIVED}
        fits = {name: is_whole(size) and size >= 1 for name, size in sizes.items()}
        wrong = [f"{name} is {spelt(size, 40)}, expected at least 1" for name, size in sizes.items() if not fits[name]]
        if not wrong and self.embed % self.heads:
            wrong.append(f"heads is {self.heads}, which does not divide embed, {self.embed}")
        if not wrong and self.heads % sizes.get("num_key_value_heads", 1):
            wrong.append(
                f"num_key_value_heads is {self.num_key_value_heads}, which does not divide heads, {self.heads}"
            )
        if wrong:
            headline = f"{type(self).__name__}: no such transformer"
            raise GraphError(message(headline, *wrong, remedy="Choose other sizes."))
        for name, size in sizes.items():
            object.__setattr__(self, name, int(size))
        for name in ("use_bias", "stacked", "tied"):
            object.__setattr__(self, name, read_flag(getattr(self, name), f"{name}= {own}"))
        object.__setattr__(self, "epsilon", read_number(self.epsilon, f"epsilon= {own}"))
        read_dtypes(self.dtype, self.param_dtype, own)

    @property
    def hidden(self) -> int:
        """The size of `mlp`."""
        return 4 * self.embed if self.mlp is None else self.mlp


class Block(Residual):
    """One layer: `x + attention(norm(x))`, then `x + mlp(norm(x))`.

    Args:
      config: the sizes.
      causal: whether a position sees only itself and what comes before it.
      rngs: whose stream `params` initialises.
    """

    def __init__(self, config: TransformerConfig, *, causal: bool = True, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.features = config.embed
        self.attention_norm = LayerNorm(config.embed, epsilon=config.epsilon, **dtypes)
        shared: Any = {"num_key_value_heads": config.num_key_value_heads, "use_bias": config.use_bias}
        self.attention = MultiHeadAttention(config.heads, config.embed, causal=causal, **shared, **dtypes)
        self.mlp_norm = LayerNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.mlp = MLP(config.embed, config.hidden, use_bias=config.use_bias, **dtypes)


class Transformer(LanguageModel):
    """Tokens to logits: token and position vectors, pre-norm causal blocks, a norm and a linear head.

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
        self.decoder = make_blocks(
            lambda rngs: Block(config, rngs=rngs), config.layers, stacked=config.stacked, rngs=rngs
        )
        self.norm = LayerNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.head: Linear | None = nnx.data(None)
        if not config.tied:
            self.head = Linear(config.embed, config.vocab, dims=("embed", "vocab"), use_bias=False, **dtypes)


def _check(config: Any, rngs: Any, name: str) -> None:
    if not isinstance(config, TransformerConfig):
        details = ("expected a TransformerConfig", f"got {type(config).__name__}: {spelt(config)}")
        remedy = "Pass TransformerConfig(layers=2, embed=64, heads=4, vocab=256)."
        raise GraphError(message(f"config= of {name} is not what it should be", *details, remedy=remedy))
    read_rngs(rngs, f"of {name}")
