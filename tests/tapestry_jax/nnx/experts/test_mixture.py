"""Mixtures of experts: as every expert run on every token, in value and gradient, under plans and not."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.contract import assert_contract
from tests.simulated.sampled import computed, held
from tests.thoroughly import thoroughly

X = np.float32(np.random.default_rng(0).standard_normal((3, 4, 6)))
TYPE = tp.TensorType({"batch": 3, "seq": 4, "embed": 6})
EXPERTS = 3


def kept(numbers: Any, capacity: int) -> Any:
    """Which choices find a place, one after the other."""
    found = np.ones(numbers.shape, bool)
    for row, places in zip(np.asarray(numbers), found, strict=True):
        taken = np.zeros(EXPERTS, int)
        for choice in range(row.shape[1]):
            for token in range(row.shape[0]):
                places[token, choice] = taken[row[token, choice]] < capacity
                taken[row[token, choice]] += 1
    return found


def reference(state: Any, top_k: int, factor: float | None, gated: bool) -> Any:
    _, numbers = jax.lax.top_k(X @ state["router"]["kernel"][...], top_k)
    capacity = X.shape[1] if factor is None else math.ceil(factor * top_k * X.shape[1] / EXPERTS)
    return partial(written_out, kept(numbers, capacity), top_k, gated)


def written_out(places: Any, top_k: int, gated: bool, state: Any, x: Any) -> Any:
    logits = x @ state["router"]["kernel"][...]
    shares, numbers = jax.lax.top_k(jax.nn.softmax(logits), top_k)
    shares = shares / shares.sum(-1, keepdims=True) if top_k > 1 else shares
    wide = jnp.einsum("bse,xem->bsxm", x, state["up"][...])
    active = jnp.einsum("bse,xem->bsxm", x, state["gate"][...]) if gated else wide
    hidden = jax.nn.gelu(active) * (wide if gated else 1)
    made = jnp.einsum("bsxm,xme->bsxe", hidden, state["down"][...])
    taken = jnp.take_along_axis(made, numbers[..., None], axis=2)
    chosen = jax.nn.one_hot(numbers, EXPERTS).sum(-2).mean((0, 1))
    balance = EXPERTS * jnp.sum(chosen * jax.nn.softmax(logits).mean((0, 1)))
    z = jnp.mean(jax.nn.logsumexp(logits, axis=-1) ** 2)
    return jnp.sum(taken * (shares * places)[..., None], axis=2), balance, z, np.int32((~places).sum())


def scored(run: Any, call: Any, state: Any) -> Any:
    params, rest = nnx.split_state(state, nnx.Param, ...)

    def score(params: Any, x: Any) -> Any:
        y, balance, z, dropped = call(nnx.merge_state(params, rest), x)
        return jnp.sum(jnp.sin(y)) + 0.3 * balance + 0.1 * z, (y, balance, z, dropped)

    return run(jax.value_and_grad(score, (0, 1), has_aux=True), params, X)


def outputs_of(run: Any) -> Any:
    def call(state: Any, x: Any) -> Any:
        y, written = run(state, x)
        return y, written["load_balance"][...], written["router_z"][...], written["dropped"][...]

    return call


CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    # Experts and rows on one mesh axis: as below, where there are more choices to send.
    "switch": ({"top_k": 1, "capacity_factor": 0.7}, [{"batch": "data", "expert": "data"}] * thoroughly()),
    "two of them, gated": (
        {"top_k": 2, "capacity_factor": 1.0, "gated": True},
        [{"choice": "model", "expert": "model", "batch": "data", "batch_sent": "data"}],
    ),
    "dropless": ({"top_k": 2}, [{"expert": "data", "mlp": "model"}]),
    "dropless, in chunks": ({"top_k": 2}, [{"expert": "data", "mlp": "model", "batch": tp.chunks(size=2)}]),
}
THOROUGH = ["dropless, in chunks"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in CASES]
)
def test_experts_are_those_of_the_reference(name: str) -> None:
    options, plans = CASES[name]
    layer = tp.nnx.MoE(EXPERTS, 6, 4, rngs=nnx.Rngs(0), **options)
    graph, state = tp.trace(layer, TYPE), nnx.state(layer)
    told = (options["top_k"], options.get("capacity_factor"), options.get("gated", False))
    runs: list[Any] = []
    for entries in plans:
        plan = tp.plan(graph, tp.mesh(data=2, model=2), entries)
        plan.verify()
        # Ragged products and their gradients send in lifting/rules/test_grouped.py what is predicted.
        assert_contract(plan, thoroughly() or "capacity_factor" in options)
        runs.append(plan.compile())

    def check(plain: Any, planned: Any) -> None:
        expected = scored(plain, reference(state, *told), state)
        assert (expected[0][1][3] > 0) == ("capacity_factor" in options)
        found = [scored(plain, outputs_of(graph), state), *(scored(planned, outputs_of(run), state) for run in runs)]
        for got in found:
            for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=str(path))

    # XLA has the plan with its gradient above; ragged products of plans are run by it in lifting/rules/test_grouped.py.
    held(check) if thoroughly() else check(computed, computed)


def test_experts_in_parallel_send_two_all_to_alls() -> None:
    layer = tp.nnx.MoE(4, 6, 4, capacity_factor=1.0, rngs=nnx.Rngs(0))
    types = tp.TensorType({"batch": 4, "seq": 4, "embed": 6})
    plan = tp.plan(tp.trace(layer, types), tp.mesh(data=4), {"batch": "data", "expert": "data"})
    large = [each.kind for each in plan.collectives() if each.bytes > 16]
    assert large == ["all-to-all", "all-to-all"]


def test_a_loss_reads_what_layers_of_a_stack_say() -> None:
    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        balance = tp.fold(tp.aggregators.Mean(), "layer -> ()")(model.layer.load_balance[...])
        return tp.fold(tp.aggregators.Mean(), "b s e -> ()")(y) + 0.1 * balance

    layers = [tp.nnx.MoE(EXPERTS, 6, 4, capacity_factor=1.0, rngs=nnx.Rngs(seed)) for seed in range(2)]
    stack, x, said = tp.nnx.Stack(layers), jnp.asarray(X), list[Any]()
    value, written = tp.trace(loss, stack, TYPE)(nnx.state(stack), x)
    for layer in layers:
        x = layer(x)
        said.append(layer.load_balance[...])
    np.testing.assert_allclose(value, x.mean() + 0.1 * np.mean(said), rtol=1e-5)
    np.testing.assert_allclose(written["model"]["layer"]["load_balance"][...], said, rtol=1e-5)


def test_one_expert_is_an_mlp_in_bfloat16() -> None:
    layer = tp.nnx.MoE(1, 6, 4, top_k=1, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    x = jnp.asarray(X, jnp.bfloat16)
    y = layer(x)
    up, down = (part[...][0].astype(jnp.bfloat16) for part in (layer.up, layer.down))
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(y), np.float32(jax.nn.gelu(x @ up) @ down), atol=0.05)
    np.testing.assert_allclose([layer.load_balance[...], layer.dropped[...]], [1, 0], rtol=1e-6)


def test_graphs_of_experts_are_stored() -> None:
    for factor in (None, 1.0):
        graph = tp.trace(tp.nnx.MoE(EXPERTS, 6, 4, capacity_factor=factor, rngs=nnx.Rngs(0)), TYPE)
        assert tp.Graph.from_json(graph.to_json()).key == graph.key


@pytest.mark.parametrize("factor", [None, 1.0])
def test_no_tokens_choose_nobody(factor: float | None) -> None:
    layer = tp.nnx.MoE(EXPERTS, 6, 4, capacity_factor=factor, rngs=nnx.Rngs(0))
    for x in (X[:0], X[:, :0]):
        assert layer(x).shape == x.shape and layer.dropped[...] == 0


@pytest.mark.parametrize("shape", [(0, 4, 6), (3, 0, 6)])
def test_no_tokens_cost_nothing(shape: tuple[int, ...]) -> None:
    """Also behind a batch that cost something; a loss that adds them up stays a number, and so do its slopes."""
    layer = tp.nnx.MoE(EXPERTS, 6, 4, rngs=nnx.Rngs(0))
    layer(X)
    assert layer.load_balance[...] > 0 and layer.router_z[...] > 0

    def spent(layer: Any, x: Any) -> Any:
        layer(x)
        return layer.load_balance[...] + layer.router_z[...]

    graph = tp.trace(spent, layer, tp.TensorType(dict(zip(("batch", "seq", "embed"), shape, strict=True))))
    for run in (graph, tp.plan(graph, tp.mesh(data=2)).compile()):
        params, rest = nnx.split_state(nnx.state(layer), nnx.Param, ...)

        def both(params: Any, run: Any = run, rest: Any = rest) -> Any:
            return run(nnx.merge_state(params, rest), jnp.zeros(shape))

        (value, _), slopes = jax.value_and_grad(both, has_aux=True)(params)
        assert value == 0 and not any(np.any(slope) for slope in jax.tree.leaves(slopes))
    layer(np.zeros(shape, np.float32))
    assert layer.load_balance[...] == layer.router_z[...] == layer.dropped[...] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"top_k": 4}, "a token cannot choose an expert twice"),
        ({"capacity_factor": 0.0}, "capacity_factor= of MoE makes no places"),
        ({"num_experts": 0}, "num_experts= of MoE"),
    ],
)
def test_mixtures_that_cannot_be_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(tp.GraphError, match=told):
        tp.nnx.MoE(**({"num_experts": EXPERTS, "features": 6, "hidden": 4, "rngs": nnx.Rngs(0)} | options))
    with pytest.raises(tp.SignatureError, match="MoE: the input does not fit"):
        tp.nnx.MoE(EXPERTS, 5, 4, rngs=nnx.Rngs(0))(X)
