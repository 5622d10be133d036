"""Tokens that follow prompts, the most probable ones, with a cache of keys and values whose heads lie over a mesh."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.lines.given import filled, whole

RULES = {
    "attention.query": P(None, "model"),
    "attention.key": P(None, "model"),
    "attention.value": P(None, "model"),
    "attention.out": P("model"),
    "mlp.up": P(None, "model"),
    "mlp.down": P("model"),
    "head": P(None, "model"),
}


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


def placed(path, leaf, mesh):
    name = ".".join(str(part.key) for part in path)
    spec = next((spec for part, spec in RULES.items() if part in name and leaf.ndim > 1), P())
    return jax.device_put(leaf, NamedSharding(mesh, spec))


def run(count=8):
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    model, prompt = filled(Transformer(nnx.Rngs(0))), whole(4, 6, below=32)
    for block in model.decoder:
        block.attention.init_cache((4, prompt.shape[1] + count, 16))
        for cache in (block.attention.cached_key, block.attention.cached_value):
            cache[...] = jax.device_put(cache[...], NamedSharding(mesh, P("data", None, "model")))
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    nnx.update(model, jax.tree.map_with_path(lambda path, leaf: placed(path, leaf, mesh), params))
    graphdef, cache, rest = nnx.split(model, nnx.Cache, ...)

    @jax.jit
    def decode(cache, rest, prompt):
        def turn(carry, at):
            token, cache = carry
            model = nnx.merge(graphdef, cache, rest)
            given = prompt[:, jnp.minimum(at, prompt.shape[1] - 1)]
            token = jnp.where(at < prompt.shape[1], given, token)
            following = jnp.argmax(model(token[:, None], at)[:, 0], axis=-1).astype(token.dtype)
            return (following, nnx.state(model, nnx.Cache)), following

        positions = jnp.arange(prompt.shape[1] + count - 1)
        _, drawn = lax.scan(turn, (prompt[:, 0], cache), positions)
        return drawn[prompt.shape[1] - 1 :].T

    return decode(cache, rest, jax.device_put(prompt, NamedSharding(mesh, P("data"))))
