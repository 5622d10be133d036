"""A Mamba layer, trained with the batch over one axis of a mesh and the sequence over the other."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

from benchmarks.lines.given import filled, normal


def merged(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


class Mamba(nnx.Module):
    def __init__(self, features, state, rank, rngs):
        inner, linear = 2 * features, partial(nnx.Linear, use_bias=False, rngs=rngs)
        self.expand, self.gate, self.out = linear(features, inner), linear(features, inner), linear(inner, features)
        self.taps, self.taps_bias = nnx.Param(jnp.zeros((4, inner))), nnx.Param(jnp.zeros(inner))
        self.step_down, self.step_up = linear(inner, rank), nnx.Linear(rank, inner, rngs=rngs)
        self.b, self.c = linear(inner, state), linear(inner, state)
        self.decay, self.d = nnx.Param(jnp.zeros((inner, state))), nnx.Param(jnp.ones(inner))

    def __call__(self, u):
        x = self.expand(u)
        padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
        x = jax.nn.silu(sum(padded[:, at : at + x.shape[1]] * self.taps[at] for at in range(4)) + self.taps_bias[...])
        step = jax.nn.softplus(self.step_up(self.step_down(x)))
        decay = jnp.exp(-step[..., None] * jnp.exp(self.decay[...]))
        added = (step * x)[..., None] * self.b(x)[..., None, :]
        _, states = lax.associative_scan(merged, (decay, added), axis=1)
        y = jnp.einsum("btcn,btn->btc", states, self.c(x)) + self.d[...] * x
        return self.out(y * jax.nn.silu(self.gate(u)))


@nnx.jit
def step(model, optimizer, x, y):
    value, gradient = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
    optimizer.update(model, gradient)
    return value


def run():
    with jax.set_mesh(jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)):
        model = filled(Mamba(8, 4, 2, nnx.Rngs(0)))
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
        x, y = (jax.device_put(normal(4, 8, 8, seed=seed), jax.P("data", "model")) for seed in range(2))
        return [step(model, optimizer, x, y) for _ in range(3)]
