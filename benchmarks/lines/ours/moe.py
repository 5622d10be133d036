"""A layer of experts, each token sent to two, trained with batch and experts over one axis of a mesh."""

import optax
from flax import nnx

import tapestry_jax as tp
from benchmarks.lines.given import filled, normal


def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y) + 0.01 * model.load_balance[...]


def run():
    model = filled(tp.nnx.MoE(8, 8, 16, top_k=2, capacity_factor=1.25, rngs=nnx.Rngs(0)))
    x, y, types = normal(8, 16, 8), normal(8, 16, 8, seed=1), tp.TensorType({"batch": 8, "seq": 16, "embed": 8})
    plan = tp.plan(tp.trace(loss, model, types, types), tp.mesh(data=8), {"batch": "data", "expert": "data"})
    trainer = tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan)
    return [trainer.step(x, y)["loss"] for _ in range(3)]
