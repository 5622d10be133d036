"""A network of Flax with dropout, trained on a mesh: the cells that are dropped are those of one device."""

import jax.numpy as jnp
import optax
from flax import nnx

import tapestry_jax as tp
from benchmarks.lines.given import filled, normal


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(8, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.down(self.dropout(nnx.relu(self.up(x))))


def loss(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


def run():
    model, x, y = filled(MLP(nnx.Rngs(0))), normal(16, 8), normal(16, 8, seed=1)
    graph = tp.lift(loss, model, x, y, names={"x": "batch embed", "model/up/kernel": "embed mlp"}, state=True)
    plan = tp.plan(graph, tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"})
    trainer = tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan)
    return [trainer.step(x, y)["loss"] for _ in range(3)]
