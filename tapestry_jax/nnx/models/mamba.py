"""A language model of selective state spaces."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.frozen import dataclass
from combinators.recording.value import Value
from tapestry_jax.nnx.blocks.language_model import LanguageModel
from tapestry_jax.nnx.blocks.repeated import make_blocks
from tapestry_jax.nnx.models.fields import read_config, read_fields
from tapestry_jax.nnx.modules.sequence_layer import SequenceLayer
from tapestry_jax.nnx.norms.layer import RMSNorm
from tapestry_jax.nnx.options import read_rngs
from tapestry_jax.nnx.projections.embed import Embed
from tapestry_jax.nnx.projections.linear import Linear
from tapestry_jax.nnx.recurrent.mamba import Mamba


@dataclass(frozen=True)
class MambaConfig:
    """The sizes of a Mamba. `MambaConfig(24, 768, 50280)` are those of the smallest that was published.

    Attributes:
      layers: how many blocks.
      embed: size of the residual stream.
      vocab: how many tokens there are.
      state: cells of the state of each feature.
      expansion: how many times as wide the inside of a block is.
      width: of its convolution.
      rank: features that the steps are made of; by default a sixteenth of `embed`.
      epsilon: added to the mean squares of the norms.
      tied: whether the token vectors are the head, too.
      stacked: whether the blocks are one `Stack`.
      dtype: of the computation; by default that of the parameters.
      param_dtype: of the parameters.

    Raises:
      GraphError: when a field is not what it should be.
    """

    layers: int
    embed: int
    vocab: int
    state: int = 16
    expansion: int = 2
    width: int = 4
    rank: int | None = None
    epsilon: float = 1e-5
    tied: bool = True
    stacked: bool = True
    dtype: Any = None
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        sizes = ("layers", "embed", "vocab", "state", "expansion", "width", "rank")
        read_fields(self, sizes, derived=("rank",), positive=("epsilon",), flags=("tied", "stacked"))


class MambaBlock(SequenceLayer):
    """`x + mamba(norm(x))`."""

    def __init__(self, config: MambaConfig, *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.features = config.embed
        self.norm = RMSNorm(config.embed, epsilon=config.epsilon, **dtypes)
        options: dict[str, Any] = {"expansion": config.expansion, "width": config.width, "rank": config.rank}
        self.mamba = Mamba(config.embed, config.state, **options, **dtypes)

    def forward(self, x: Value) -> Value:
        """`(..., seq, embed)`, which comes back."""
        return x + self.mamba(self.norm(x))


class MambaModel(LanguageModel):
    """Tokens to logits: blocks of selective state spaces, without attention; `seq` can be cut, as scans can.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.

    Source: Gu and Dao 2023.
    """

    def __init__(self, config: MambaConfig, *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.config = config
        self.embed = Embed(config.vocab, config.embed, **dtypes)
        self.positions = nnx.data(None)
        self.decoder = make_blocks(
            lambda rngs: MambaBlock(config, rngs=rngs), config.layers, stacked=config.stacked, rngs=rngs
        )
        self.norm = RMSNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.head: Linear | None = nnx.data(None)
        if not config.tied:
            self.head = Linear(config.embed, config.vocab, dims=("embed", "vocab"), use_bias=False, **dtypes)


def _check(config: Any, rngs: Any, name: str) -> None:
    read_config(config, MambaConfig, "MambaConfig(layers=2, embed=64, vocab=256)")
    read_rngs(rngs, f"of {name}")
