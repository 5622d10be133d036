"""A Mamba layer, trained with the batch over one axis of a mesh and the sequence over the other."""

import optax
from flax import nnx

import tapestry_jax as tp
from benchmarks.lines.given import filled, normal


def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y)


def run():
    model, x, y = filled(tp.nnx.Mamba(8, 4, rank=2, rngs=nnx.Rngs(0))), normal(4, 8, 8), normal(4, 8, 8, seed=1)
    types = tp.TensorType({"batch": 4, "seq": 8, "embed": 8})
    plan = tp.plan(tp.trace(loss, model, types, types), tp.mesh(data=2, model=4), {"batch": "data", "seq": "model"})
    trainer = tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan)
    return [trainer.step(x, y)["loss"] for _ in range(3)]
