"""Mixtral: a Llama whose feed-forward parts are experts, of which each token chooses some."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

import jax
from flax import nnx

from combinators import aggregators
from combinators.frozen import dataclass
from combinators.leaves.fold import fold
from combinators.recording.value import Value
from tapestry_jax.nnx.blocks.stack import Stack
from tapestry_jax.nnx.experts.mixture import MoE
from tapestry_jax.nnx.models.fields import check, read_config, read_fields
from tapestry_jax.nnx.models.llama import LlamaBlock, LlamaConfig, RotaryDecoder
from tapestry_jax.nnx.models.published.hugging_face import read_fields_of
from tapestry_jax.nnx.models.published.model import Published
from tapestry_jax.nnx.models.published.named_llama import LLAMA, MIXTRAL_TOLD


@dataclass(frozen=True)
class MixtralConfig(LlamaConfig):
    """The sizes of a Mixtral: those of a Llama, whose `mlp` is that of each expert.

    Attributes:
      experts: how many there are in each block.
      top_k: how many a token chooses.
      capacity_factor: places of each expert, as `MoE` takes it; None drops nothing.

    Raises:
      GraphError: when a field is not what it should be.
    """

    experts: int = 8
    top_k: int = 2
    capacity_factor: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        factor = () if self.capacity_factor is None else ("capacity_factor",)
        read_fields(self, ("experts", "top_k"), positive=factor)
        wrong = [f"top_k is {self.top_k}, and there are {self.experts} experts"] * (self.top_k > self.experts)
        check("MixtralConfig", wrong + ["mlp_bias is True, and experts have none"] * self.mlp_bias)

    @classmethod
    def from_hugging_face(cls, config: str | PathLike[str] | Mapping[str, Any], **options: Any) -> Self:
        """The sizes that a `config.json` tells, as `LlamaConfig` reads it; windows of attention are refused."""
        return read_fields_of(cls, MIXTRAL_TOLD, config, options)


class Mixtral(Published, RotaryDecoder):
    """Tokens to logits: causal blocks with rotary positions and gated experts.

    A forward pass writes into every layer's `mlp` what `MoE` says beside its result; `load_balance` and `router_z` are
    for a loss behind it.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.

    Source: Jiang et al. 2024.
    """

    _naming = LLAMA
    _config_kind = MixtralConfig

    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs) -> None:
        read_config(config, MixtralConfig, "MixtralConfig(layers=2, embed=64, heads=4, vocab=256, mlp=128)")
        super().__init__(config, lambda rngs: LlamaBlock(config, experts_of(config, rngs), rngs=rngs), rngs=rngs)

    def load_balance(self) -> Value:
        """The mean of all layers, behind a forward pass inside of the same program."""
        return self._mean("load_balance")

    def router_z(self) -> Value:
        """The mean of all layers, behind a forward pass inside of the same program."""
        return self._mean("router_z")

    def _mean(self, name: str) -> Any:
        if isinstance(self.decoder, Stack):
            said = getattr(self.decoder.layer.mlp, name)[...]
            return fold(aggregators.Mean(), "layer -> ()", name=name)(said)
        parts = [getattr(block.mlp, name)[...] for block in self.decoder]
        return sum(parts[1:], parts[0]) / len(parts)


def experts_of(config: MixtralConfig, rngs: nnx.Rngs) -> MoE:
    """The experts of one block."""
    return MoE(
        config.experts,
        config.embed,
        config.mlp,
        top_k=config.top_k,
        capacity_factor=config.capacity_factor,
        normalized=True,
        gated=True,
        activation=jax.nn.silu,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        rngs=rngs,
    )
