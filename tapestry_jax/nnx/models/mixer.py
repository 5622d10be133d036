"""MLP-Mixer: patches mixed by linear maps alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.blocks.repeated import make_blocks, run_blocks
from tapestry_jax.nnx.models.classifier import Classifier
from tapestry_jax.nnx.models.fields import check_divides, read_config, read_fields
from tapestry_jax.nnx.models.patches import Patches, mean_of_positions
from tapestry_jax.nnx.modules.sequence_layer import SequenceLayer
from tapestry_jax.nnx.norms.layer import LayerNorm
from tapestry_jax.nnx.options import read_rngs
from tapestry_jax.nnx.projections.linear import Linear
from tapestry_jax.nnx.projections.mlp import MLP


@dataclass(frozen=True)
class MixerConfig:
    """The sizes of an MLP-Mixer.

    Attributes:
      layers: how many blocks.
      embed: size of the residual stream.
      tokens: hidden size of the maps over positions.
      mlp: hidden size of the maps over features.
      classes: how many there are.
      image: cells of an image along both axes.
      patch: cells of a patch along both; it divides `image`.
      channels: of an image.
      epsilon: added to the variances of the norms.
      stacked: whether the blocks are one `Stack`.
      dtype: of the computation; by default that of the parameters.
      param_dtype: of the parameters.

    Raises:
      GraphError: when a field is not what it should be, or patches do not divide an image.
    """

    layers: int
    embed: int
    tokens: int
    mlp: int
    classes: int
    image: int = 224
    patch: int = 16
    channels: int = 3
    epsilon: float = 1e-6
    stacked: bool = True
    dtype: Any = None
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        sizes = ("layers", "embed", "tokens", "mlp", "classes", "image", "patch", "channels")
        read_fields(self, sizes, positive=("epsilon",), flags=("stacked",))
        check_divides(self, ("patch", "image"))


class MixerBlock(SequenceLayer):
    """`x + across(norm(x))`, then `x + mlp(norm(x))`: the first map along positions, the second one along features."""

    def __init__(self, config: MixerConfig, *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.features, patches = config.embed, (config.image // config.patch) ** 2
        self.token_norm = LayerNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.token_up = Linear(patches, config.tokens, dims=("seq", "tokens"), **dtypes)
        self.token_down = Linear(config.tokens, patches, dims=("tokens", "seq"), **dtypes)
        self.mlp_norm = LayerNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.mlp = MLP(config.embed, config.mlp, **dtypes)

    def forward(self, x: Value) -> Value:
        """Mix the positions of every feature, then the features of every position."""
        last = x.ndim - 1
        swapped = (*range(last - 1), last, last - 1)
        across = self.token_down(Map(jax.nn.gelu)(self.token_up(self.token_norm(x).transpose(*swapped))))
        x = x + across.transpose(*swapped)
        return x + self.mlp(self.mlp_norm(x))


class Mixer(Classifier):
    """Images to logits of classes: patches, blocks that mix positions and features in turn, and the mean of positions.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.

    Source: Tolstikhin et al. 2021.
    """

    def __init__(self, config: MixerConfig, *, rngs: nnx.Rngs) -> None:
        _check(config, rngs, type(self).__name__)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.config = config
        self.patches = Patches(config.image, config.patch, config.channels, config.embed, **dtypes)
        self.blocks = make_blocks(
            lambda rngs: MixerBlock(config, rngs=rngs), config.layers, stacked=config.stacked, rngs=rngs
        )
        self.norm = LayerNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.head = Linear(config.embed, config.classes, dims=("embed", "classes"), **dtypes)

    def forward(self, images: Value) -> Value:
        """Logits of every image.

        Raises:
          SignatureError: when images have another size.
        """
        x = run_blocks(self.blocks, self.patches(images))
        return self.head(mean_of_positions(self.norm(x)))


def _check(config: Any, rngs: Any, name: str) -> None:
    read_config(config, MixerConfig, "MixerConfig(layers=2, embed=64, tokens=32, mlp=128, classes=10)")
    read_rngs(rngs, f"of {name}")
