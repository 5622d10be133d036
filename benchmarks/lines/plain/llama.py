"""A Llama block, four of them, trained with a pipeline of four stages and parameters stored over the batch's axis."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import P, lax

from benchmarks.lines.given import filled, normal


def rotary(x):
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 1e4 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Attention(nnx.Module):
    def __init__(self, rngs):
        linear = partial(nnx.LinearGeneral, use_bias=False, rngs=rngs)
        self.query, self.key, self.value = linear(16, (4, 4)), linear(16, (2, 4)), linear(16, (2, 4))
        self.out = linear((4, 4), 16, axis=(-2, -1))

    def __call__(self, x):
        q, k, v = rotary(self.query(x)), rotary(self.key(x)), self.value(x)
        return self.out(jax.nn.dot_product_attention(q, k, v, is_causal=True))


class MLP(nnx.Module):
    def __init__(self, rngs):
        linear = partial(nnx.Linear, use_bias=False, rngs=rngs)
        self.up, self.gate, self.down = linear(16, 32), linear(16, 32), linear(32, 16)

    def __call__(self, x):
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.attention_norm, self.mlp_norm = (nnx.RMSNorm(16, rngs=rngs) for _ in range(2))
        self.attention, self.mlp = Attention(rngs), MLP(rngs)

    def __call__(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def gathered(spec, leaf):
    return lax.all_gather(leaf, "data", axis=1, tiled=True) if "data" in spec else leaf


def pipeline(graphdef, specs, params, x, y, chunks=4, stages=4):
    params = jax.tree.map(gathered, specs, params, is_leaf=lambda spec: isinstance(spec, P))
    stage, parts = lax.axis_index("model"), x.reshape(chunks, -1, *x.shape[1:])

    def layer(x, params):
        return nnx.merge(graphdef, params)(x), None

    def turn(carry, at):
        handed, done = carry
        now, _ = lax.scan(layer, jnp.where(stage == 0, parts[jnp.minimum(at, chunks - 1)], handed), params)
        place = at - (stages - 1)
        done = jnp.where(place >= 0, lax.dynamic_update_index_in_dim(done, now, jnp.maximum(place, 0), 0), done)
        return (lax.ppermute(now, "model", [(at, at + 1) for at in range(stages - 1)]), done), None

    begin = lax.pcast((jnp.zeros_like(parts[0]), jnp.zeros_like(parts)), "model", to="varying")
    (_, done), _ = lax.scan(jax.checkpoint(turn), begin, jnp.arange(chunks + stages - 1))
    error = jnp.where(stage == stages - 1, jnp.mean((done.reshape(y.shape) - y) ** 2), 0.0)
    return lax.pmean(lax.psum(error, "model"), "data")


def run():
    with jax.set_mesh(jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)):
        graphdef, params = nnx.split(filled(nnx.split_rngs(splits=4)(nnx.vmap(Block))(nnx.Rngs(0))))
        specs = jax.tree.map(lambda leaf: P("model", "data") if leaf.size // 4 >= 64 else P("model"), params)
        params = jax.tree.map(jax.device_put, params, specs)
        x, y = (jax.device_put(normal(8, 6, 16, seed=seed), P("data")) for seed in range(2))
        places = {"in_specs": (specs, P("data"), P("data")), "out_specs": P()}
        across, optimizer = jax.shard_map(partial(pipeline, graphdef, specs), **places), optax.sgd(0.1)

        @jax.jit
        def step(params, state, x, y):
            value, gradient = jax.value_and_grad(across)(params, x, y)
            updates, state = optimizer.update(gradient, state)
            return value, optax.apply_updates(params, updates), state

        state, losses = optimizer.init(params), []
        for _ in range(3):
            value, params, state = step(params, state, x, y)
            losses.append(value)
    return losses
