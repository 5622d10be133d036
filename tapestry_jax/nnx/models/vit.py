"""The vision transformer."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.frozen import dataclass
from combinators.recording.value import Value
from tapestry_jax.nnx.blocks.repeated import make_blocks, run_blocks
from tapestry_jax.nnx.blocks.transformer import Block, TransformerConfig
from tapestry_jax.nnx.models.classifier import Classifier
from tapestry_jax.nnx.models.fields import check_divides, read_config, read_fields
from tapestry_jax.nnx.models.patches import Patches, mean_of_positions
from tapestry_jax.nnx.norms.layer import LayerNorm
from tapestry_jax.nnx.options import read_rngs
from tapestry_jax.nnx.projections.embed import PositionEmbed
from tapestry_jax.nnx.projections.linear import Linear


@dataclass(frozen=True)
class ViTConfig:
    """The sizes of a vision transformer.

    Attributes:
      layers: how many blocks.
      embed: size of the residual stream.
      heads: of each attention; they divide `embed`.
      classes: how many there are.
      image: cells of an image along both axes.
      patch: cells of a patch along both; it divides `image`.
      mlp: hidden size of each block, by default `4 * embed`.
      channels: of an image.
      epsilon: added to the variances of the norms.
      stacked: whether the blocks are one `Stack`.
      dtype: of the computation; by default that of the parameters.
      param_dtype: of the parameters.

    Raises:
      GraphError: when a field is not what it should be, or one does not divide the other.
    """

    layers: int
    embed: int
    heads: int
    classes: int
    image: int = 224
    patch: int = 16
    mlp: int | None = None
    channels: int = 3
    epsilon: float = 1e-6
    stacked: bool = True
    dtype: Any = None
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        sizes = ("layers", "embed", "heads", "classes", "image", "patch", "mlp", "channels")
        read_fields(self, sizes, derived=("mlp",), positive=("epsilon",), flags=("stacked",))
        check_divides(self, ("heads", "embed"), ("patch", "image"))

    @property
    def patches(self) -> int:
        """How many an image has."""
        return (self.image // self.patch) ** 2

    @property
    def encoder(self) -> TransformerConfig:
        """The sizes of the blocks."""
        sizes = {name: getattr(self, name) for name in ("layers", "embed", "heads", "mlp", "epsilon", "stacked")}
        dtypes: dict[str, Any] = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        return TransformerConfig(vocab=self.classes, max_len=self.patches, **sizes, **dtypes)


class ViT(Classifier):
    """Images to logits of classes: patches, learned positions, blocks that see all positions, and their mean.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.

    Source: Dosovitskiy et al. 2021, with the mean of positions in the place of a class token.
    """

    def __init__(self, config: ViTConfig, *, rngs: nnx.Rngs) -> None:
        read_config(config, ViTConfig, "ViTConfig(layers=2, embed=64, heads=4, classes=10)")
        read_rngs(rngs, "of ViT")
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.config, inside = config, config.encoder
        self.patches = Patches(config.image, config.patch, config.channels, config.embed, **dtypes)
        self.positions = PositionEmbed(config.patches, config.embed, **dtypes)
        self.encoder = make_blocks(
            lambda rngs: Block(inside, causal=False, rngs=rngs), config.layers, stacked=config.stacked, rngs=rngs
        )
        self.norm = LayerNorm(config.embed, epsilon=config.epsilon, **dtypes)
        self.head = Linear(config.embed, config.classes, dims=("embed", "classes"), **dtypes)

    def forward(self, images: Value) -> Value:
        """Logits of every image.

        Raises:
          SignatureError: when images have another size.
        """
        x = self.patches(images)
        x = run_blocks(self.encoder, x + self.positions(x))
        return self.head(mean_of_positions(self.norm(x)))
