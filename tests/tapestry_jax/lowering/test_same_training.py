"""Training gives the same numbers on every mesh, and what one mesh saves every other restores."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.draw import normal

matmul = tp.einsum("i k, k n -> i n")
tanh = tp.Map(jnp.tanh)

# Uneven on all meshes but one device.
PARAMS = {"up": normal(6, 10), "bias": normal(10, seed=1), "down": normal(10, 5, seed=2)}
DATA = normal(7, 6, seed=3), normal(7, 5, seed=4)
MESHES = {1: {"model": 1}, 2: {"data": 2, "model": 2}, 3: {"model": 3}, 4: {"data": 2, "model": 4}, 8: {"model": 8}}
OPTIMIZERS = {
    "adamw": optax.adamw(1e-2),
    "lamb": optax.lamb(1e-2),
    "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)),
    "ema": optax.chain(optax.ema(0.9), optax.sgd(0.1)),
}
STEPS = 4


@tp.program("batch embed, embed mlp, mlp, mlp out, batch out -> ")
def loss(x, up, bias, down, target):
    off = matmul(tanh(matmul(x, up) + bias), down) - target
    return tp.fold(tp.aggregators.Mean(), "batch out -> ")(off * off)


def graph():
    return tp.trace(lambda p, x, target: loss(x, p["up"], p["bias"], p["down"], target), PARAMS, *DATA)


def planned(axes):
    plan = tp.plan(
        graph(), tp.mesh(**axes), {dim: axis for dim, axis in {"batch": "data", "mlp": "model"}.items() if axis in axes}
    )
    return plan, plan.put(PARAMS, *DATA)


def step_of(run, optimizers):
    """One step of every optimizer, each with its own parameters; parameters, states and losses."""

    @jax.jit
    def step(trained, x, target):
        after, values = {}, {}
        for name, optimizer in optimizers.items():
            parameters, state = trained[name]
            values[name], gradients = jax.value_and_grad(run)(parameters, x, target)
            updates, state = optimizer.update(gradients, state, parameters)
            after[name] = optax.apply_updates(parameters, updates), state
        return after, values

    return step


def trained(run, parameters, x, target):
    step = step_of(run, OPTIMIZERS)
    states = {name: (parameters, jax.jit(optimizer.init)(parameters)) for name, optimizer in OPTIMIZERS.items()}
    values = []
    for _ in range(STEPS):
        states, found = step(states, x, target)
        values.append(found)
    return jax.tree.map(np.asarray, (states, values))


@pytest.fixture(scope="module")
def unplanned():
    program = graph()
    return trained(lambda *args: program(*args), PARAMS, *DATA)


@pytest.mark.parametrize(
    "devices", [each if each == 8 else pytest.param(each, marks=pytest.mark.thorough) for each in MESHES]
)
def test_optimizers_give_the_same_numbers_on_every_mesh(devices, unplanned):
    plan, args = planned(MESHES[devices])
    found = trained(plan.compile(), *args)

    def same(actual, expected):
        # Sums of float32 in another order: measured at most 2.4e-7 of the largest number, two roundings.
        scale = float(np.max(np.abs(expected))) if expected.size else 0.0
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 * scale)

    jax.tree.map(same, found, unplanned)


def test_a_checkpoint_of_one_mesh_is_restored_bitwise_on_every_other(tmp_path: Path):
    optimizer = {"adamw": OPTIMIZERS["adamw"]}

    def begun(axes):
        plan, (parameters, *data) = planned(axes)
        everywhere = jax.sharding.NamedSharding(plan.mesh, jax.sharding.PartitionSpec())
        moments_at = optax.tree.map_params(
            optimizer["adamw"],
            lambda _, at: at,
            jax.eval_shape(optimizer["adamw"].init, parameters),
            plan.in_shardings[0],
            transform_non_params=lambda _: everywhere,
        )
        moments = jax.jit(optimizer["adamw"].init, out_shardings=moments_at)(parameters)
        return step_of(plan.compile(), optimizer), {"adamw": (parameters, moments)}, data

    # A mesh that restores is one that saved: what it compiles is there.
    begun_on = functools.cache(lambda devices: begun(MESHES[devices]))
    saver = ocp.StandardCheckpointer()
    saved, losses = {}, {}
    for devices in (1, 3, 4):
        step, states, data = begun_on(devices)
        states, _ = step(states, *data)
        saver.save(tmp_path / str(devices), states)
        saver.wait_until_finished()
        saved[devices] = jax.tree.map(np.asarray, states)
        assert [leaf.shape for leaf in jax.tree.leaves(states["adamw"][0])] == [(10,), (10, 5), (6, 10)]
        losses[devices] = float(step(states, *data)[1]["adamw"])
    for source, target in ((1, 4), (3, 4), (4, 3), (4, 1)):
        step, like, data = begun_on(target)
        restored = saver.restore(tmp_path / str(source), like)
        jax.tree.map(np.testing.assert_array_equal, restored, saved[source])
        for leaf, wanted in zip(jax.tree.leaves(restored), jax.tree.leaves(like), strict=True):
            assert leaf.sharding.is_equivalent_to(wanted.sharding, leaf.ndim)
        np.testing.assert_allclose(float(step(restored, *data)[1]["adamw"]), losses[source], rtol=1e-6)
