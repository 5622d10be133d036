"""A network of Flax with dropout, trained on a mesh: the cells that are dropped are those of one device."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import P

from benchmarks.lines.given import filled, normal


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(8, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.down(self.dropout(nnx.relu(self.up(x))))


def loss(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


@nnx.jit
def step(model, optimizer, x, y):
    value, gradient = nnx.value_and_grad(loss)(model, x, y)
    optimizer.update(model, gradient)
    return value


def run():
    with jax.set_mesh(jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)):
        model = filled(MLP(nnx.Rngs(0)))
        up, down = model.up, model.down
        for leaf, spec in (up.kernel, P(None, "model")), (up.bias, P("model")), (down.kernel, P("model")):
            leaf[...] = jax.device_put(leaf[...], spec)
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
        x, y = (jax.device_put(normal(16, 8, seed=seed), P("data")) for seed in range(2))
        return [step(model, optimizer, x, y) for _ in range(3)]
