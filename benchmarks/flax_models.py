"""Models written with Flax's own layers, as its users write them: the peers of `tp.nnx` and of `tp.nnx.models`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

RULES = (("batch", "data"), ("embed", None), ("heads", "model"), ("mlp", "model"), ("vocab", "model"))
"""Logical axis rules of `{"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}`."""


class MLP(nnx.Module):
    def __init__(self, features: int, hidden: int, *, rngs: nnx.Rngs) -> None:
        kernel, bias = nnx.initializers.lecun_normal(), nnx.initializers.zeros
        self.up = nnx.Linear(
            features,
            hidden,
            kernel_init=nnx.with_partitioning(kernel, ("embed", "mlp")),
            bias_init=nnx.with_partitioning(bias, ("mlp",)),
            rngs=rngs,
        )
        self.down = nnx.Linear(hidden, features, kernel_init=nnx.with_partitioning(kernel, ("mlp", "embed")), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.down(nnx.gelu(self.up(x)))


class GLU(nnx.Module):
    def __init__(self, features: int, hidden: int, activation: Any = nnx.silu, *, rngs: nnx.Rngs) -> None:
        self.activation = activation
        self.gate, self.up = (nnx.Linear(features, hidden, use_bias=False, rngs=rngs) for _ in range(2))
        self.down = nnx.Linear(hidden, features, use_bias=False, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.down(self.activation(self.gate(x)) * self.up(x))


class CausalAttention(nnx.MultiHeadAttention):
    def __init__(self, heads: int, features: int, *, rngs: nnx.Rngs) -> None:
        super().__init__(
            heads,
            features,
            decode=False,
            kernel_init=nnx.with_partitioning(nnx.initializers.lecun_normal(), ("embed", "heads", None)),
            bias_init=nnx.with_partitioning(nnx.initializers.zeros, ("heads", None)),
            out_kernel_init=nnx.with_partitioning(nnx.initializers.lecun_normal(), ("heads", None, "embed")),
            out_bias_init=nnx.initializers.zeros,
            rngs=rngs,
        )

    def __call__(self, x: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().__call__(x, mask=nnx.make_causal_mask(jnp.ones(x.shape[:-1])), decode=False)


class Block(nnx.Module):
    """A block before whose parts stand norms; `causal` as decoders have it."""

    def __init__(
        self, features: int, heads: int, hidden: int, epsilon: float, causal: bool = True, *, rngs: nnx.Rngs
    ) -> None:
        self.attention_norm, self.mlp_norm = (nnx.LayerNorm(features, epsilon=epsilon, rngs=rngs) for _ in range(2))
        plain = partial(nnx.MultiHeadAttention, decode=False)
        self.attention: Any = (CausalAttention if causal else plain)(heads, features, rngs=rngs)
        self.mlp = MLP(features, hidden, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nnx.Module):
    """Tokens to logits: learned positions, layer norms, a head of its own, or the table of tokens."""

    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        table = nnx.with_partitioning(nnx.initializers.normal(1.0), ("vocab", "embed"))
        self.embed = nnx.Embed(config.vocab, config.embed, embedding_init=table, rngs=rngs)
        self.positions = nnx.Embed(config.max_len, config.embed, rngs=rngs)
        sizes = (config.embed, config.heads, config.hidden, config.epsilon)
        self.decoder = nnx.List([Block(*sizes, rngs=rngs) for _ in range(config.layers)])
        self.norm = nnx.LayerNorm(config.embed, epsilon=config.epsilon, rngs=rngs)
        kernel = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("embed", "vocab"))
        self.head = (
            None
            if config.tied
            else nnx.Linear(config.embed, config.vocab, use_bias=False, kernel_init=kernel, rngs=rngs)
        )

    def __call__(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.positions(jnp.arange(tokens.shape[1]))
        for block in self.decoder:
            x = block(x)
        x = self.norm(x)
        return self.embed.attend(x) if self.head is None else self.head(x)


class Llama(nnx.Module):
    """RMS norms, rotary positions, grouped queries and a SwiGLU, of Flax's linear layers."""

    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(config.vocab, config.embed, rngs=rngs)
        self.decoder = nnx.List([LlamaBlock(config, rngs=rngs) for _ in range(config.layers)])
        self.norm = nnx.RMSNorm(config.embed, epsilon=config.epsilon, rngs=rngs)
        self.head = nnx.Linear(config.embed, config.vocab, use_bias=False, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.decoder:
            x = block(x)
        return self.head(self.norm(x))


class LlamaBlock(nnx.Module):
    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        heads, shared, dim = config.heads, config.num_key_value_heads, config.embed // config.heads
        project = partial(nnx.LinearGeneral, config.embed, use_bias=False, rngs=rngs)
        self.attention_norm, self.mlp_norm = (
            nnx.RMSNorm(config.embed, epsilon=config.epsilon, rngs=rngs) for _ in range(2)
        )
        self.query, self.key, self.value = project((heads, dim)), project((shared, dim)), project((shared, dim))
        self.out = nnx.LinearGeneral((heads, dim), config.embed, axis=(-2, -1), use_bias=False, rngs=rngs)
        self.mlp, self.base = GLU(config.embed, config.mlp, rngs=rngs), config.rotary_base

    def __call__(self, x: Any) -> Any:
        y = self.attention_norm(x)
        q, k = rotary(self.query(y), self.base), rotary(self.key(y), self.base)
        x = x + self.out(jax.nn.dot_product_attention(q, k, self.value(y), is_causal=True))
        return x + self.mlp(self.mlp_norm(x))


def rotary(x: Any, base: float) -> Any:
    """Features `(batch, seq, heads, d)` turned by their positions, halves together."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None, None] * base ** (-jnp.arange(half) / half)
    left, right = jnp.split(x, 2, -1)
    turned = left * jnp.cos(angles) - right * jnp.sin(angles), right * jnp.cos(angles) + left * jnp.sin(angles)
    return jnp.concatenate(turned, -1)


class Patches(nnx.Module):
    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        size = (config.patch, config.patch)
        self.conv = nnx.Conv(config.channels, config.embed, size, size, padding="VALID", rngs=rngs)

    def __call__(self, images: Any) -> Any:
        x = self.conv(images)
        return x.reshape(len(x), -1, x.shape[-1])


class ViT(nnx.Module):
    """Images to logits: blocks that see all patches, and their mean."""

    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        self.patches, self.positions = Patches(config, rngs=rngs), nnx.Embed(config.patches, config.embed, rngs=rngs)
        sizes = (config.embed, config.heads, config.mlp or 4 * config.embed, config.epsilon, False)
        self.encoder = nnx.List([Block(*sizes, rngs=rngs) for _ in range(config.layers)])
        self.norm = nnx.LayerNorm(config.embed, epsilon=config.epsilon, rngs=rngs)
        self.head = nnx.Linear(config.embed, config.classes, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        x = self.patches(images) + self.positions.embedding[...]
        for block in self.encoder:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class MixerBlock(nnx.Module):
    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        patches = (config.image // config.patch) ** 2
        self.token_norm, self.mlp_norm = (
            nnx.LayerNorm(config.embed, epsilon=config.epsilon, rngs=rngs) for _ in range(2)
        )
        self.token_up = nnx.Linear(patches, config.tokens, rngs=rngs)
        self.token_down = nnx.Linear(config.tokens, patches, rngs=rngs)
        self.mlp = MLP(config.embed, config.mlp, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        across = self.token_down(nnx.gelu(self.token_up(self.token_norm(x).swapaxes(1, 2))))
        x = x + across.swapaxes(1, 2)
        return x + self.mlp(self.mlp_norm(x))


class Mixer(nnx.Module):
    """Images to logits: maps along patches and along features in turn."""

    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        self.patches = Patches(config, rngs=rngs)
        self.blocks = nnx.List([MixerBlock(config, rngs=rngs) for _ in range(config.layers)])
        self.norm = nnx.LayerNorm(config.embed, epsilon=config.epsilon, rngs=rngs)
        self.head = nnx.Linear(config.embed, config.classes, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        x = self.patches(images)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Residual(nnx.Module):
    """Two windows of three, and what came in; `stride` of the first one."""

    def __init__(self, inside: int, out: int, stride: int, *, rngs: nnx.Rngs) -> None:
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        norm = partial(nnx.BatchNorm, momentum=0.9, rngs=rngs)
        around = ((1, 1), (1, 1))
        self.windows, self.windows_norm = conv(inside, out, (3, 3), stride, padding=around), norm(out)
        self.last, self.last_norm = conv(out, out, (3, 3), padding=around), norm(out)
        self.changes = stride != 1 or inside != out
        if self.changes:
            self.shortcut, self.shortcut_norm = conv(inside, out, (1, 1), stride, padding="VALID"), norm(out)

    def __call__(self, x: Any) -> Any:
        y = self.last_norm(self.last(nnx.relu(self.windows_norm(self.windows(x)))))
        return nnx.relu((self.shortcut_norm(self.shortcut(x)) if self.changes else x) + y)


class ResNet(nnx.Module):
    """Small images to logits, as `ResNetConfig(small=True)`."""

    def __init__(self, config: Any, *, rngs: nnx.Rngs) -> None:
        self.begin = nnx.Conv(
            config.channels, config.width, (3, 3), padding=((1, 1), (1, 1)), use_bias=False, rngs=rngs
        )
        self.begin_norm = nnx.BatchNorm(config.width, momentum=0.9, rngs=rngs)
        stages: list[Any] = []
        inside = config.width
        for at, many in enumerate(config.blocks):
            out = config.width << at
            strides = [1 + (at > 0 and block == 0) for block in range(many)]
            blocks: list[Any] = []
            for stride in strides:
                blocks.append(Residual(inside, out, stride, rngs=rngs))
                inside = out
            stages.append(nnx.List(blocks))
        self.stages = nnx.List(stages)
        self.head = nnx.Linear(inside, config.classes, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        x = nnx.relu(self.begin_norm(self.begin(images)))
        for blocks in self.stages:
            for block in blocks:
                x = block(x)
        return self.head(x.mean((1, 2)))
