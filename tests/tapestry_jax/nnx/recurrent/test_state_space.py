"""A linear state space equals its recurrence step by step, and its sequence can be cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

import tapestry_jax as tp
from tests.simulated.sampled import sampled

X = np.float32(np.random.default_rng(0).standard_normal((2, 8, 3)))


def step_by_step(state: Any, x: Any) -> Any:
    """The layer for one sequence, as a loop."""
    b, c, d, decay = (state[name] for name in ("b", "c", "d", "decay"))
    a = jax.nn.sigmoid(decay)

    def step(h: Any, now: Any) -> Any:
        h = a * h + (1 - a) * (now @ b)
        return h, h @ c + d * now

    return lax.scan(step, jnp.zeros(4), x)[1]


def test_states_are_those_of_the_loop_planned_and_not() -> None:
    layer = tp.nnx.DiagonalSSM(3, 4, rngs=nnx.Rngs(0))
    layer.d[...] = jnp.array([0.5, -1.0, 2.0])
    graph = tp.trace(layer, tp.TensorType({"batch": 2, "seq": 8, "embed": 3}))
    plan = tp.plan(graph, tp.mesh(data=2, model=2), {"seq": "data", "state": "model"})
    assert {step.kind for step in plan.collectives()} == {"collective-permute", "all-reduce"}  # states, and their sum

    def scored(call: Any, state: Any) -> Any:
        return sampled(jax.value_and_grad(lambda state, x: jnp.sum(jnp.sin(call(state, x))), (0, 1)), state, X)

    state, graphdef = nnx.state(layer), nnx.graphdef(layer)
    expected = scored(jax.vmap(step_by_step, (None, 0)), nnx.to_pure_dict(state))
    for call in (lambda state, x: nnx.merge(graphdef, state)(x), plan.compile()):
        for a, b in zip(jax.tree.leaves(scored(call, state)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_decays_begin_between_0_and_1() -> None:
    decays = jax.nn.sigmoid(tp.nnx.DiagonalSSM(3, 4, rngs=nnx.Rngs(0)).decay[...])
    np.testing.assert_allclose(decays, np.exp(-np.logspace(0, -3, 4)), rtol=1e-4)


def test_features_of_another_size_are_told() -> None:
    expected = "^DiagonalSSM: the input does not fit\\n  expected positions, then embed=3\\n"
    with pytest.raises(tp.SignatureError, match=expected):
        tp.nnx.DiagonalSSM(3, 4, rngs=nnx.Rngs(0))(X[..., :2])
