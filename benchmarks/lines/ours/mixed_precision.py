"""A network computed in bfloat16, whose parameters and optimizer stay in float32, trained on a mesh."""

import jax.numpy as jnp
import optax
from flax import nnx

import tapestry_jax as tp
from benchmarks.lines.given import filled, normal


def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y)


def run():
    model, x, y = filled(tp.nnx.MLP(8, 32, rngs=nnx.Rngs(0))), normal(16, 8), normal(16, 8, seed=1)
    types = tp.TensorType({"batch": 16, "embed": 8})
    plan = tp.plan(tp.trace(loss, model, types, types), tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"})
    precision = {"": jnp.bfloat16, "y": None}
    trainer = tp.nnx.Trainer(loss, model, optax.adamw(1e-2), plan, precision=precision)
    return [trainer.step(x, y)["loss"] for _ in range(3)]
