"""Tokens that follow prompts, the most probable ones, with a cache of keys and values whose heads lie over a mesh."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import P

from benchmarks.lines.given import filled, whole


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(16, 64, rngs=rngs), nnx.Linear(64, 16, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x)))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.attention_norm, self.mlp_norm = (nnx.LayerNorm(16, rngs=rngs) for _ in range(2))
        self.attention, self.mlp = nnx.MultiHeadAttention(4, 16, decode=True, rngs=rngs), MLP(rngs)

    def __call__(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.positions = nnx.Embed(32, 16, rngs=rngs), nnx.Embed(16, 16, rngs=rngs)
        self.decoder, self.norm = nnx.List([Block(rngs) for _ in range(2)]), nnx.LayerNorm(16, rngs=rngs)
        self.head = nnx.Linear(16, 32, use_bias=False, rngs=rngs)

    def __call__(self, token, position):
        x = self.embed(token) + self.positions(position)
        for block in self.decoder:
            x = block(x)
        return self.head(self.norm(x))


@nnx.jit
def step(model, token, at):
    return jnp.argmax(model(token[:, None], at)[:, 0], axis=-1)


def placed(spec, *layers):
    for layer in layers:
        layer.kernel[...] = jax.device_put(layer.kernel[...], spec)


def run(count=8):
    model, prompt, drawn = filled(Transformer(nnx.Rngs(0))), whole(4, 6, below=32), []
    with jax.set_mesh(jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)):
        placed(P(None, "model"), model.head)
        for attention, mlp in ((block.attention, block.mlp) for block in model.decoder):
            placed(P(None, "model"), attention.query, attention.key, attention.value, mlp.up)
            placed(P("model"), attention.out, mlp.down)
            attention.init_cache((4, prompt.shape[1] + count, 16))
            for cache in (attention.cached_key, attention.cached_value):
                cache[...] = jax.device_put(cache[...], P("data", None, "model"))
        for at in range(prompt.shape[1] + count - 1):
            drawn.append(step(model, prompt[:, at] if at < prompt.shape[1] else drawn[-1], at))
    return jnp.stack(drawn[-count:], axis=1)
