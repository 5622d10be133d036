"""A layer of experts, each token sent to two, trained with batch and experts over one axis of a mesh."""

import math

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import P, lax

from benchmarks.lines.given import filled, normal


class MoE(nnx.Module):
    def __init__(self, experts, features, hidden, top_k, factor, rngs):
        self.router = nnx.Linear(features, experts, use_bias=False, rngs=rngs)
        self.up = nnx.Param(jnp.zeros((experts, features, hidden)))
        self.down = nnx.Param(jnp.zeros((experts, hidden, features)))
        self.top_k, self.factor = top_k, factor

    def __call__(self, x):
        experts, rows = self.up.shape[0], x.shape[0]
        capacity = math.ceil(self.factor * self.top_k * x.shape[1] / experts)
        chances = jax.nn.softmax(self.router(x))
        shares, numbers = lax.top_k(chances, self.top_k)
        shares = shares / shares.sum(-1, keepdims=True)
        taken = jax.nn.one_hot(numbers, experts, dtype=int)
        in_turn = jnp.swapaxes(taken, 1, 2).reshape(rows, -1, experts)
        rank = jnp.swapaxes((jnp.cumsum(in_turn, 1) - in_turn).reshape(rows, self.top_k, -1, experts), 1, 2)
        places = taken[..., None] * jax.nn.one_hot(rank, capacity)
        sent = jnp.einsum("bskxc,bse->bxce", places, x)
        sent = lax.with_sharding_constraint(sent, P(None, "data"))
        made = jax.nn.gelu(jnp.einsum("bxce,xem->bxcm", sent, self.up[...]))
        made = jnp.einsum("bxcm,xme->bxce", made, self.down[...])
        made = lax.with_sharding_constraint(made, P("data"))
        balance = experts * jnp.sum(taken.sum(2).mean((0, 1)) * chances.mean((0, 1)))
        return jnp.einsum("bskxc,bsk,bxce->bse", places, shares, made), balance


def loss(model, x, y):
    found, balance = model(x)
    return jnp.mean((found - y) ** 2) + 0.01 * balance


@nnx.jit
def step(model, optimizer, x, y):
    value, gradient = nnx.value_and_grad(loss)(model, x, y)
    optimizer.update(model, gradient)
    return value


def run():
    with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))):
        model = filled(MoE(8, 8, 16, 2, 1.25, nnx.Rngs(0)))
        model.up[...], model.down[...] = jax.device_put((model.up[...], model.down[...]), P("data"))
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
        x, y = (jax.device_put(normal(8, 16, 8, seed=seed), P("data")) for seed in range(2))
        return [step(model, optimizer, x, y) for _ in range(3)]
