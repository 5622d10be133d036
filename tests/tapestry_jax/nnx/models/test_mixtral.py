"""Mixtral: equal to a plain one in jnp in value and gradient, planned and not, and decoding as without a cache.

In every run its values and gradients are held on the tensors of a checkpoint, and decoding in other models; here both
are thorough.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.models import Mixtral, MixtralConfig, generate
from tests.contract import assert_contract, assert_same
from tests.simulated.sampled import computed
from tests.tapestry_jax.nnx.models import llama_reference as reference
from tests.thoroughly import thoroughly

TOKENS = np.random.default_rng(1).integers(0, 23, (8, 6)).astype(np.int32)
# One by one and in a loop several layers are told apart in nnx/blocks/test_stack.py.
LAYERS = 2 if thoroughly() else 1
SIZES: dict[str, Any] = {"layers": LAYERS, "embed": 8, "heads": 4, "vocab": 23, "mlp": 6, "num_key_value_heads": 2}
PARTS = {
    "attention_norm.scale": "input_layernorm.weight",
    "mlp_norm.scale": "post_attention_layernorm.weight",
    "attention.query.kernel": "self_attn.q_proj.weight",
    "attention.key.kernel": "self_attn.k_proj.weight",
    "attention.value.kernel": "self_attn.v_proj.weight",
    "attention.out.kernel": "self_attn.o_proj.weight",
}
CONFIG = reference.CONFIG | {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "head_dim": 2, "num_hidden_layers": LAYERS}


def model_of(**options: Any) -> Any:
    return Mixtral(MixtralConfig(**SIZES, experts=4, **options), rngs=nnx.Rngs(0))


def loss(model: Any, tokens: Any) -> Any:
    return tp.nnx.cross_entropy(model(tokens), tokens) + 0.1 * model.load_balance()


def plain_loss(held: dict[str, Any]) -> Any:
    """The same in jnp: every expert transforms every token, and is weighted by its share."""
    weights = {"model.embed_tokens.weight": held["embed.embedding"], "model.norm.weight": held["norm.scale"]}
    weights["lm_head.weight"] = held["head.kernel"].T
    for layer in range(LAYERS):
        for ours, theirs in PARTS.items():
            array = held[f"decoder.{layer}.{ours}"]
            rows = array.reshape(8, -1) if array.shape[0] == 8 else array.reshape(-1, 8)
            weights[f"model.layers.{layer}.{theirs}"] = array if array.ndim == 1 else rows.T
    balances = []

    def experts(y: Any, layer: int) -> Any:
        part = {name: held[f"decoder.{layer}.mlp.{name}"] for name in ("router.kernel", "up", "gate", "down")}
        chances = jax.nn.softmax(y @ part["router.kernel"])
        best, numbers = jax.lax.top_k(chances, 2)
        chosen = jax.nn.one_hot(numbers, 4)
        shares = jnp.einsum("bsk,bskx->bsx", best / best.sum(-1, keepdims=True), chosen)
        gate = jax.nn.silu(jnp.einsum("bse,xem->bsxm", y, part["gate"]))
        made = jnp.einsum("bsxm,xme->bsxe", gate * jnp.einsum("bse,xem->bsxm", y, part["up"]), part["down"])
        balances.append(4 * jnp.sum(chosen.sum(2).mean((0, 1)) * chances.mean((0, 1))))
        return jnp.einsum("bsx,bsxe->bse", shares, made)

    made = jax.nn.log_softmax(reference.logits(weights, CONFIG, TOKENS, experts))
    return -jnp.take_along_axis(made, TOKENS[..., None], -1).mean() + 0.1 * sum(balances) / LAYERS


# On the tensors of a checkpoint it is held by published/test_published.py.
@pytest.mark.thorough
def test_mixtral_equals_a_plain_one_with_gradients() -> None:
    model = model_of(stacked=False)
    graph, state = tp.trace(loss, model, TOKENS), nnx.state(model)
    held = {".".join(map(str, path)): v.get_value() for path, v in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    expected, wanted = computed(jax.value_and_grad(plain_loss), held)

    def of_parameters(parameters: Any) -> Any:
        return graph(nnx.merge_state(state, parameters), TOKENS)[0]

    value, grads = computed(jax.value_and_grad(of_parameters), nnx.state(model, nnx.Param))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    found = {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(grads)}
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_allclose(found[path], array, rtol=1e-3, atol=1e-5, err_msg=path)
    stacked = model_of()
    found, _ = computed(tp.trace(loss, stacked, TOKENS), nnx.state(stacked), TOKENS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


PLANS = {
    "expert parallel": ({"capacity_factor": 1.5}, {"batch": "data", "expert": "data", "heads": "model"}),
    "dropless": ({}, {"batch": "data", "expert": "model"}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", PLANS)
def test_plans_by_hand(name: str, mesh2x4: Any) -> None:
    options, entries = PLANS[name]
    model = model_of(**options)
    plan = tp.plan(tp.trace(loss, model, TOKENS), mesh2x4, entries)
    assert_contract(plan)
    assert_same(plan, (nnx.state(model), TOKENS))
    assert ("all-to-all" in {step.kind for step in plan.collectives()}) == (name == "expert parallel")


@pytest.mark.thorough
def test_a_plan_that_is_found(mesh2x4: Any) -> None:
    model = model_of(capacity_factor=1.5)
    graph = tp.trace(loss, model, TOKENS)
    memory = tp.plan(graph, mesh2x4).memory(grad=True).total // 2
    plan = tp.search(graph, mesh2x4, "h100", memory, grad=True, seed=0, method="milp")
    assert plan.entries
    assert_contract(plan, bounded=True)
    assert_same(plan, (nnx.state(model), TOKENS))


# Its attention decodes in test_decoding.py, and what layers say beside a cache is held in nnx/attention/test_cache.py.
@pytest.mark.thorough
def test_mixtral_decodes_as_without_a_cache() -> None:
    model = model_of()
    tokens = np.pad(TOKENS[:2, :4], ((0, 0), (0, 3)))
    run = tp.trace(model, tokens)
    for at in range(4, 7):
        tokens[:, at] = np.argmax(computed(run, nnx.state(model), tokens)[0][:, at - 1], -1)
    np.testing.assert_array_equal(generate(model, TOKENS[:2, :4], 3), tokens[:, 4:])
    decoder, tokens = tp.nnx.with_cache(model, 2, 6), TOKENS[:2]
    state, found = nnx.state(decoder), []
    for part in (tokens[:, :5], tokens[:, 5:]):
        logits, written = computed(tp.trace(decoder, part), state, part)
        state = nnx.merge_state(state, written)
        found.append(logits)
    expected, _ = computed(tp.trace(model, tokens), nnx.state(model), tokens)
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"experts": 2, "top_k": 3}, "top_k is 3, and there are 2 experts"),
        ({"capacity_factor": 0.0}, "capacity_factor is 0.0, expected a positive number"),
        ({"mlp_bias": True}, "mlp_bias is True, and experts have none"),
        ({"layers": 0}, "MixtralConfig: no such model"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: Any, expected: str) -> None:
    with pytest.raises(tp.GraphError) as error:
        MixtralConfig(**SIZES | options)
    assert expected in str(error.value)
