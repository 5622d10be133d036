"""Selective state spaces: as a loop runs them step by step, in value and gradient, under plans and not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.contract import assert_contract
from tests.simulated.sampled import computed, sampled
from tests.thoroughly import thoroughly

X = np.float32(np.random.default_rng(0).standard_normal((2, 5, 4)))
TYPE = tp.TensorType({"batch": 2, "seq": 5, "embed": 4})


def reference(state: Any, x: Any) -> Any:
    """Algorithm 2 of the paper by the letter: JAX's own convolution, and a loop over positions."""
    inner, gate = x @ state["expand"]["kernel"], x @ state["gate"]["kernel"]
    width, features = state["taps"].shape
    inner = jax.lax.conv_general_dilated(
        inner,
        state["taps"][:, None],
        (1,),
        [(width - 1, 0)],
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=features,
    )
    inner = jax.nn.silu(inner + state["taps_bias"])
    step = jax.nn.softplus(inner @ state["step_down"]["kernel"] @ state["step_up"]["kernel"] + state["step_up"]["bias"])
    b, c, decay = inner @ state["b"]["kernel"], inner @ state["c"]["kernel"], -jnp.exp(state["decay"])
    h, read = jnp.zeros((x.shape[0], *decay.shape)), list[Any]()
    for t in range(x.shape[1]):
        h = jnp.exp(step[:, t, :, None] * decay) * h + (step[:, t] * inner[:, t])[..., None] * b[:, t, None]
        read.append((h * c[:, t, None]).sum(-1))
    y = jnp.stack(read, 1) + state["d"] * inner
    return (y * jax.nn.silu(gate)) @ state["out"]["kernel"]


def test_states_are_those_of_a_loop() -> None:
    layer = tp.nnx.Mamba(4, 3, expansion=2, width=3, rank=2, rngs=nnx.Rngs(0))
    layer.taps_bias[...] = jnp.linspace(-1, 1, 8)
    graph, state = tp.trace(layer, TYPE), nnx.state(layer)
    assert tp.Graph.from_json(graph.to_json()).key == graph.key
    mesh = tp.mesh(data=2, model=2)
    plan = tp.plan(graph, mesh, {"seq": "data", "inner": "model"})
    plan.verify()
    # What gradients of scans and windows send is held in contract/; here they are run in NumPy, below.
    assert_contract(plan, thoroughly())
    chunks = tp.plan(graph, mesh, {"seq": tp.chunks(size=2), "batch": "data", "state": "model"})
    chunks.verify()

    def scored(by: Any, run: Any) -> Any:
        def score(state: Any, x: Any) -> Any:
            y = run(state, x)
            return jnp.sum(jnp.sin(y)), y

        return jax.tree.leaves(by(jax.value_and_grad(score, (0, 1), has_aux=True), state, X))

    expected = scored(computed, lambda state, x: reference(nnx.to_pure_dict(state), x))
    for found in (scored(computed, graph), scored(sampled if thoroughly() else computed, plan.compile())):
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    if thoroughly():
        np.testing.assert_allclose(computed(chunks.compile(), state, X), expected[1], rtol=1e-4, atol=1e-5)


def test_a_window_of_one_and_a_single_position() -> None:
    layer = tp.nnx.Mamba(4, 2, width=1, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    y = layer(jnp.asarray(X, jnp.bfloat16))
    assert y.dtype == jnp.bfloat16 and y.shape == X.shape
    np.testing.assert_allclose(np.float32(y[:, :1]), np.float32(layer(jnp.asarray(X[:, :1], jnp.bfloat16))), atol=1e-3)


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(tp.SignatureError, match="Mamba: the input does not fit"):
        tp.nnx.Mamba(3, rngs=nnx.Rngs(0))(X)
