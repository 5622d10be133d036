"""Every layer and model of `tp.nnx` beside its namesake of Flax: the same parameters, the same operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import tapestry_jax as tp
from benchmarks import flax_models
from combinators.frozen import dataclass
from tapestry_jax.nnx.models import (
    GPT,
    GPTConfig,
    Llama,
    LlamaConfig,
    Mixer,
    MixerConfig,
    ResNet,
    ResNetConfig,
    ViT,
    ViTConfig,
)

TOKENS = jax.ShapeDtypeStruct((8, 256), jnp.int32)
X = jax.ShapeDtypeStruct((8, 256, 256), jnp.float32)
LINES = jax.ShapeDtypeStruct((32, 64, 128), jnp.float32)
IMAGES = jax.ShapeDtypeStruct((8, 32, 32, 64), jnp.float32)
PHOTOS = jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.float32)


@dataclass(frozen=True)
class Pair:
    """A layer beside Flax's own.

    Attributes:
      ours: makes the module of `tp.nnx`.
      theirs: makes that of Flax.
      x: what both are given.
      names: of the axes of `x`, where the defaults of `tp.nnx` are not meant.
    """

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    x: Any
    names: str | None = None


def rngs() -> nnx.Rngs:
    return nnx.Rngs(0)


def _both(name: str, *sizes: Any, x: Any = X, names: str | None = None, **options: Any) -> Pair:
    def made(library: Any) -> Callable[[], Any]:
        return lambda: getattr(library, name)(*sizes, rngs=rngs(), **options)

    return Pair(made(tp.nnx), made(nnx), x, names)


def _pooled(name: str, *options: Any) -> Pair:
    ours, theirs = (getattr(library, name) for library in (tp.nnx, nnx))
    return Pair(
        lambda: tp.nnx.Sequential(lambda x: ours(x, *options)),
        lambda: nnx.Sequential(lambda x: theirs(x, *options)),
        IMAGES,
        AREA,
    )


def _ends(cell: str, x: Any) -> Pair:
    def made(library: Any) -> Callable[[], Any]:
        def rnn() -> Any:
            return library.RNN(getattr(library, cell)(128, 128, rngs=rngs()))

        return lambda: library.Bidirectional(rnn(), rnn())

    return Pair(made(tp.nnx), made(nnx), x)


def _line(cell: str) -> Pair:
    def made(library: Any) -> Callable[[], Any]:
        return lambda: library.RNN(getattr(library, cell)(128, 128, rngs=rngs()))

    return Pair(made(tp.nnx), made(nnx), LINES)


def _model(ours: Any, theirs: Any, config: Any, x: Any) -> Pair:
    return Pair(lambda: ours(config, rngs=rngs()), lambda: theirs(config, rngs=rngs()), x)


AREA = "batch y x channels"
VOLUMES = jax.ShapeDtypeStruct((2, 16, 16, 16, 32), jnp.float32)
SMALL: dict[str, Any] = {"layers": 2, "embed": 192, "heads": 4}
PAIRS: dict[str, Pair] = {
    "Linear": _both("Linear", 256, 1024),
    "LinearGeneral": Pair(
        lambda: tp.nnx.LinearGeneral(256, (8, 32), dims=("embed", ("heads", "head_dim")), rngs=rngs()),
        lambda: nnx.LinearGeneral(256, (8, 32), rngs=rngs()),
        X,
    ),
    "Einsum": Pair(
        lambda: tp.nnx.Einsum("b s a, h a d -> b s h d", (8, 256, 32), (8, 32), rngs=rngs()),
        lambda: nnx.Einsum("bsa,had->bshd", (8, 256, 32), (8, 32), rngs=rngs()),
        X,
        "b s a",
    ),
    "Embed": _both("Embed", 4096, 256, x=TOKENS),
    "MLP": Pair(lambda: tp.nnx.MLP(256, 1024, rngs=rngs()), lambda: flax_models.MLP(256, 1024, rngs=rngs()), X),
    "GLU": Pair(
        lambda: tp.nnx.GLU(256, 1024, rngs=rngs()),
        lambda: flax_models.GLU(256, 1024, nnx.sigmoid, rngs=rngs()),
        X,
    ),
    "SwiGLU": Pair(lambda: tp.nnx.SwiGLU(256, 1024, rngs=rngs()), lambda: flax_models.GLU(256, 1024, rngs=rngs()), X),
    "LoRA": Pair(
        lambda: tp.nnx.LoRA(256, 8, 1024, base_module=tp.nnx.Linear(256, 1024, rngs=rngs()), rngs=rngs()),
        lambda: nnx.LoRA(256, 8, 1024, base_module=nnx.Linear(256, 1024, rngs=rngs()), rngs=rngs()),
        X,
    ),
    "Conv, 3 x 3": _both("Conv", 64, 64, (3, 3), x=IMAGES, names=AREA),
    "Conv, 3 x 3, strides 2": _both("Conv", 64, 128, (3, 3), 2, x=IMAGES, names=AREA),
    "Conv, 3 x 3, dilated": _both("Conv", 64, 64, (3, 3), kernel_dilation=2, x=IMAGES, names=AREA),
    "Conv, 3 x 3, 8 groups": _both("Conv", 64, 64, (3, 3), feature_group_count=8, x=IMAGES, names=AREA),
    "Conv, 1 x 1": _both("Conv", 64, 64, (1, 1), x=IMAGES, names=AREA),
    "Conv, patches of 4": _both("Conv", 64, 64, (4, 4), 4, padding="VALID", x=IMAGES, names=AREA),
    "Conv, circular": _both("Conv", 64, 64, (3, 3), padding="CIRCULAR", x=IMAGES, names=AREA),
    "Conv, lines, causal": Pair(
        lambda: tp.nnx.Conv(256, 256, 4, padding="CAUSAL", spatial=("seq",), rngs=rngs()),
        lambda: nnx.Conv(256, 256, 4, padding="CAUSAL", rngs=rngs()),
        X,
        "batch seq channels",
    ),
    "Conv, volumes": _both("Conv", 32, 32, (3, 3, 3), x=VOLUMES, names="batch z y x channels"),
    "ConvTranspose": _both("ConvTranspose", 64, 64, (3, 3), 2, x=IMAGES, names=AREA),
    "max_pool": _pooled("max_pool", (2, 2), (2, 2)),
    "min_pool": _pooled("min_pool", (3, 3), (2, 2), "SAME"),
    "avg_pool": _pooled("avg_pool", (2, 2), (2, 2)),
    "LayerNorm": _both("LayerNorm", 256),
    "RMSNorm": _both("RMSNorm", 256),
    "GroupNorm": _both("GroupNorm", 64, num_groups=8, x=IMAGES, names=AREA),
    "InstanceNorm": _both("InstanceNorm", 64, x=IMAGES, names=AREA),
    "BatchNorm": _both("BatchNorm", 64, x=IMAGES, names=AREA),
    "Dropout": _both("Dropout", 0.1),
    "MultiHeadAttention": Pair(
        lambda: tp.nnx.MultiHeadAttention(8, 256, causal=False, rngs=rngs()),
        lambda: nnx.MultiHeadAttention(8, 256, decode=False, rngs=rngs()),
        X,
    ),
    "MultiHeadAttention, causal": Pair(
        lambda: tp.nnx.MultiHeadAttention(8, 256, rngs=rngs()),
        lambda: flax_models.CausalAttention(8, 256, rngs=rngs()),
        X,
    ),
    "MultiHeadAttention, normalised": Pair(
        lambda: tp.nnx.MultiHeadAttention(8, 256, causal=False, normalize_qk=True, rngs=rngs()),
        lambda: nnx.MultiHeadAttention(8, 256, normalize_qk=True, decode=False, rngs=rngs()),
        X,
    ),
    "RNN of LSTMCell": _line("LSTMCell"),
    "RNN of GRUCell": _line("GRUCell"),
    "Bidirectional of GRUCell": _ends("GRUCell", LINES),
    "Block": Pair(
        lambda: tp.nnx.Block(tp.nnx.TransformerConfig(1, 256, 8, 128), rngs=rngs()),
        lambda: flax_models.Block(256, 8, 1024, 1e-6, rngs=rngs()),
        X,
    ),
    "Transformer": _model(
        tp.nnx.Transformer, flax_models.Transformer, tp.nnx.TransformerConfig(vocab=256, max_len=256, **SMALL), TOKENS
    ),
    "GPT": _model(GPT, flax_models.Transformer, GPTConfig(vocab=256, max_len=256, stacked=False, **SMALL), TOKENS),
    "Llama": _model(
        Llama,
        flax_models.Llama,
        LlamaConfig(vocab=256, mlp=512, num_key_value_heads=2, stacked=False, **SMALL),
        TOKENS,
    ),
    "ViT": _model(ViT, flax_models.ViT, ViTConfig(classes=10, image=32, patch=4, stacked=False, **SMALL), PHOTOS),
    "Mixer": _model(
        Mixer,
        flax_models.Mixer,
        MixerConfig(2, 192, 64, 512, classes=10, image=32, patch=4, stacked=False),
        PHOTOS,
    ),
    "ResNet": _model(ResNet, flax_models.ResNet, ResNetConfig(10, (1, 1, 1), 32, small=True), PHOTOS),
}
