"""What training begins with, where a plan stores it oddly or in short formats."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

import tapestry_jax as tp
from tapestry_jax.nnx.training.stepping.begun import begun, places_begun

TYPES = tp.TensorType({"batch": 6, "embed": 4}), tp.TensorType({"batch": 6, "embed": 4})


def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y)


def trainer_of(mesh, dtype=jnp.float32, inputs=None, **options):
    up = tp.nnx.Linear(4, 7, dims=("embed", "mlp"), param_dtype=dtype, rngs=nnx.Rngs(0))
    model = tp.nnx.Sequential(up, tp.nnx.Linear(7, 4, dims=("mlp", "embed"), param_dtype=dtype, rngs=nnx.Rngs(1)))
    plan = tp.plan(tp.trace(loss, model, *TYPES), mesh, {"batch": "data", "mlp": "model"}, inputs=inputs)
    return tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan, **options)


def test_parameters_that_a_plan_pads_are_trained_in_their_true_shapes(mesh2x4: Mesh):
    x = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    known = trainer_of(mesh2x4)
    kernel = next(node.name for node in known.plan.graph.inputs if node.results[0].shape == (4, 7))
    padded = trainer_of(mesh2x4, inputs={kernel: {"mlp": tp.padded("model")}})
    for _ in range(3):
        expected, found = (float(each.step(x, x)["loss"]) for each in (known, padded))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert (4, 7) in [leaf.shape for leaf in jax.tree.leaves(padded.state.params)]


def test_a_mean_of_short_parameters_moves(mesh2x4: Mesh):
    trainer = trainer_of(mesh2x4, jnp.bfloat16, ema=0.999)
    before = jax.tree.map(np.asarray, jax.tree.leaves(trainer.state.ema))
    assert {leaf.dtype for leaf in before} == {np.dtype("float32")}
    x = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    trainer.step(x, 3 * x)
    moved = [np.abs(after - old).max() for after, old in zip(jax.tree.leaves(trainer.state.ema), before, strict=True)]
    steps = [
        np.abs(np.float32(now) - old).max()
        for now, old in zip(jax.tree.leaves(trainer.state.params), before, strict=True)
    ]
    np.testing.assert_allclose(moved, 0.001 * np.array(steps), rtol=1e-2)
    assert min(moved) > 0


def test_what_begins_shares_no_memory_with_the_model():
    model = tp.nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    plan = tp.plan(
        tp.trace(loss, model, TYPES[0], tp.TensorType({"batch": 6, "mlp": 4})), tp.mesh(jax.devices()[:1], data=1), {}
    )
    _, places = places_begun(model, optax.sgd(0.1), plan, nnx.Param, ema=True, scale=None)
    state = begun(model, optax.sgd(0.1), places, nnx.Param, None)
    held = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((state.params, state.ema, nnx.state(model)))]
    assert len({*held}) == len(held) == 6
