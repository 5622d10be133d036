"""Mamba: equal to a plain one, position after position, in value and gradient, planned and not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.models import MambaConfig, MambaModel, generate
from tests.contract import assert_contract, assert_same
from tests.simulated.sampled import computed
from tests.thoroughly import thoroughly

TOKENS = np.random.default_rng(1).integers(0, 11, (2, 8 if thoroughly() else 5)).astype(np.int32)

# One by one and in a loop several layers are told apart in nnx/blocks/test_stack.py.
LAYERS = 2 if thoroughly() else 1


def model_of(**options: Any) -> Any:
    return MambaModel(MambaConfig(LAYERS, 8, 11, state=4, **options), rngs=nnx.Rngs(0))


def loss(model: Any, tokens: Any) -> Any:
    return tp.nnx.cross_entropy(model(tokens), tokens)


def plain_loss(held: dict[str, Any]) -> Any:
    def norm(x: Any, scale: Any) -> Any:
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale

    def layer(x: Any, part: dict[str, Any]) -> Any:
        wide, gate = x @ part["expand.kernel"], jax.nn.silu(x @ part["gate.kernel"])
        padded = jnp.pad(wide, ((0, 0), (3, 0), (0, 0)))
        taps = sum(padded[:, at : at + x.shape[1]] * part["taps"][at] for at in range(4))
        inner = jax.nn.silu(taps + part["taps_bias"])
        low = inner @ part["step_down.kernel"]
        step = jax.nn.softplus(low @ part["step_up.kernel"] + part["step_up.bias"])
        b, c, decay = inner @ part["b.kernel"], inner @ part["c.kernel"], -jnp.exp(part["decay"])
        state, rows = jnp.zeros((len(x), *decay.shape)), []
        for t in range(x.shape[1]):
            state = jnp.exp(step[:, t, :, None] * decay) * state
            state = state + (step[:, t] * inner[:, t])[..., None] * b[:, t, None]
            rows.append(jnp.einsum("bin,bn->bi", state, c[:, t]) + part["d"] * inner[:, t])
        return (jnp.stack(rows, 1) * gate) @ part["out.kernel"]

    x = held["embed.embedding"][TOKENS]
    for number in range(LAYERS):
        own = f"decoder.{number}."
        part = {path.removeprefix(f"{own}mamba."): array for path, array in held.items() if path.startswith(own)}
        x = x + layer(norm(x, held[f"{own}norm.scale"]), part)
    made = jax.nn.log_softmax(norm(x, held["norm.scale"]) @ held["embed.embedding"].T)
    return -jnp.take_along_axis(made, TOKENS[..., None], -1).mean()


def test_mamba_equals_a_plain_one_with_gradients() -> None:
    model = model_of(stacked=False)
    held = {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(nnx.state(model))}
    expected, wanted = computed(jax.value_and_grad(plain_loss), held)
    value, grads = computed(jax.value_and_grad(tp.trace(loss, model, TOKENS)), nnx.state(model), TOKENS)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    found = {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(grads)}
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_allclose(found[path], array, rtol=1e-3, atol=1e-5, err_msg=path)
    if not thoroughly():
        return  # a stack of layers is what they are one by one in nnx/blocks/test_stack.py
    stacked = model_of()
    found = computed(tp.trace(loss, stacked, TOKENS), nnx.state(stacked), TOKENS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


PLANS: dict[str, Any] = {
    "tensors": {"batch": "data", "inner": "model", "vocab": "model"},
    "sequence": {"batch": "data", "seq": "model"},
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", PLANS)
def test_plans_by_hand(name: str, mesh2x4: Any) -> None:
    model = model_of()
    plan = tp.plan(tp.trace(loss, model, TOKENS), mesh2x4, PLANS[name])
    assert_contract(plan)
    assert_same(plan, (nnx.state(model), TOKENS))


@pytest.mark.thorough
def test_a_plan_that_is_found(mesh2x4: Any) -> None:
    model = model_of()
    graph = tp.trace(loss, model, TOKENS)
    memory = tp.plan(graph, mesh2x4).memory(grad=True).total // 2
    plan = tp.search(graph, mesh2x4, "h100", memory, grad=True, seed=0, method="milp")
    assert plan.entries
    assert_contract(plan, bounded=True)
    assert_same(plan, (nnx.state(model), TOKENS))


def test_mamba_has_no_cache_yet() -> None:
    with pytest.raises(tp.GraphError, match="Mamba keeps no state between calls"):
        generate(model_of(), TOKENS, 2)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(tp.GraphError, match="MambaConfig: no such model\n  embed is 0, expected at least 1"):
        MambaConfig(1, 0, 5)
    with pytest.raises(tp.GraphError, match="config= of Mamba"):
        MambaModel({"layers": 1}, rngs=nnx.Rngs(0))
