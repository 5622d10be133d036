"""Llama: RMS norms, rotary positions, grouped queries and a gated feed-forward part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Self

import jax.numpy as jnp
from flax import nnx

from combinators.errors import spelt
from combinators.frozen import dataclass
from tapestry_jax.nnx.attention.multi_head import MultiHeadAttention
from tapestry_jax.nnx.attention.positions import RotaryScaling
from tapestry_jax.nnx.blocks.language_model import LanguageModel
from tapestry_jax.nnx.blocks.repeated import make_blocks
from tapestry_jax.nnx.blocks.residual import Residual
from tapestry_jax.nnx.models.fields import check, check_divides, read_config, read_fields
from tapestry_jax.nnx.models.published.hugging_face import read_fields_of
from tapestry_jax.nnx.models.published.model import Published
from tapestry_jax.nnx.models.published.named_llama import LLAMA, LLAMA_TOLD
from tapestry_jax.nnx.norms.layer import RMSNorm
from tapestry_jax.nnx.options import read_rngs
from tapestry_jax.nnx.projections.embed import Embed
from tapestry_jax.nnx.projections.gated import SwiGLU
from tapestry_jax.nnx.projections.linear import Linear

_SIZES = ("layers", "embed", "heads", "vocab", "mlp", "num_key_value_heads", "head_dim")


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes of a Llama.

    Attributes:
      layers: how many blocks.
      embed: size of the residual stream.
      heads: of each attention.
      vocab: how many tokens there are.
      mlp: hidden size of each block.
      num_key_value_heads: heads of keys and values, which several heads of queries share; by default `heads`.
      head_dim: features of a head, by default `embed / heads`.
      rotary_base: base of the wavelengths of positions (`rope_theta`).
      rotary_scaling: how positions are slowed down for long sequences, as in Llama 3.1, or None.
      epsilon: added to the mean squares of the norms.
      attention_bias: whether projections of the attention add biases.
      mlp_bias: whether those of the feed-forward part do.
      tied: whether the token vectors are the head, too.
      stacked: whether the blocks are one `Stack`.
      dtype: of the computation; by default that of the parameters.
      param_dtype: of the parameters.

    Raises:
      GraphError: when a field is not what it should be, or the heads do not fit.
    """

    layers: int
    embed: int
    heads: int
    vocab: int
    mlp: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rotary_base: float = 10_000.0
    rotary_scaling: RotaryScaling | None = None
    epsilon: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    tied: bool = False
    stacked: bool = True
    dtype: Any = None
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        flags = ("attention_bias", "mlp_bias", "tied", "stacked")
        derived = ("num_key_value_heads", "head_dim")
        read_fields(self, _SIZES, derived=derived, positive=("rotary_base", "epsilon"), flags=flags)
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.heads)
        check_divides(self, ("num_key_value_heads", "heads"))
        if self.head_dim is None:
            check_divides(self, ("heads", "embed"))
            object.__setattr__(self, "head_dim", self.embed // self.heads)
        check("LlamaConfig", [f"head_dim is {self.head_dim}, expected an even size"] * (self.features % 2))
        scaling: Any = self.rotary_scaling
        if not isinstance(scaling, RotaryScaling | None):
            check("LlamaConfig", [f"rotary_scaling is {spelt(scaling, 40)}, expected a RotaryScaling"])

    @property
    def features(self) -> int:
        """Features of a head."""
        return self.embed // self.heads if self.head_dim is None else self.head_dim

    @classmethod
    def from_hugging_face(cls, config: str | PathLike[str] | Mapping[str, Any], **options: Any) -> Self:
        """The sizes that a `config.json` tells, which is read as data.

        Args:
          config: the file, the folder that it lies in, or what it says.
          options: fields that the file does not tell, such as `param_dtype=jnp.bfloat16`.

        Raises:
          FormatError: where it cannot be read, or says what this model cannot do; all of it at once.
          GraphError: for an option that is no field, or sizes that no model has.
        """
        return read_fields_of(cls, LLAMA_TOLD, config, options)


class LlamaBlock(Residual):
    """One layer of a Llama.

    Args:
      config: the sizes.
      mlp: what acts on every position; by default a `SwiGLU`.
      rngs: whose stream `params` initialises.
    """

    def __init__(self, config: LlamaConfig, mlp: Any = None, *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.features = config.embed
        self.attention_norm = RMSNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.attention = MultiHeadAttention(
            config.heads,
            config.embed,
            config.heads * config.features,
            num_key_value_heads=config.num_key_value_heads,
            rotary_base=config.rotary_base,
            rotary_scaling=config.rotary_scaling,
            use_bias=config.attention_bias,
            **dtypes,
        )
        self.mlp_norm = RMSNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.mlp = SwiGLU(config.embed, config.mlp, use_bias=config.mlp_bias, **dtypes) if mlp is None else mlp


class RotaryDecoder(LanguageModel):
    """What models around such blocks share: token vectors, an RMS norm and a linear head.

    Args:
      config: the sizes.
      make: a block, initialised from the random numbers that it is given.
      rngs: whose stream `params` initialises.
    """

    def __init__(self, config: LlamaConfig, make: Callable[[nnx.Rngs], Any], *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.config = config
        self.embed = Embed(config.vocab, config.embed, **dtypes)
        self.positions = nnx.data(None)
        self.decoder = make_blocks(make, config.layers, stacked=config.stacked, rngs=rngs)
        self.norm = RMSNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.head: Linear | None = nnx.data(None)
        if not config.tied:
            self.head = Linear(config.embed, config.vocab, dims=("embed", "vocab"), use_bias=False, **dtypes)


class Llama(Published, RotaryDecoder):
    """Tokens to logits: causal blocks with rotary positions, an RMS norm and a linear head.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.

    Source: Touvron et al. 2023; Grattafiori et al. 2024.
    """

    _naming = LLAMA
    _config_kind = LlamaConfig

    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, lambda rngs: LlamaBlock(config, rngs=rngs), rngs=rngs)


def _check(config: Any, rngs: Any, name: str) -> None:
    read_config(config, LlamaConfig, "LlamaConfig(layers=2, embed=64, heads=4, vocab=256, mlp=128)")
    read_rngs(rngs, f"of {name}")
