"""Plans of the models, by hand and found: what is predicted is compiled, and planned is unplanned, with gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.models import (
    GPT,
    GPTConfig,
    Llama,
    LlamaConfig,
    Mixer,
    MixerConfig,
    ResNet,
    ResNetConfig,
    ViT,
    ViTConfig,
)
from tests.contract import assert_contract, assert_same

TOKENS = {"batch": 8, "seq": 8}
IMAGES = {"batch": 4, "y": 16, "x": 16, "channels": 3}
TENSORS = {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}
MODELS: dict[str, Any] = {
    "gpt": lambda: GPT(GPTConfig(4, 16, 4, 32, max_len=8), rngs=nnx.Rngs(0)),
    "llama": lambda: Llama(LlamaConfig(4, 16, 8, 32, 24, num_key_value_heads=4), rngs=nnx.Rngs(0)),
    "vit": lambda: ViT(ViTConfig(4, 16, 4, 8, image=16, patch=4), rngs=nnx.Rngs(0)),
    "mixer": lambda: Mixer(MixerConfig(4, 16, 8, 24, 8, image=16, patch=4), rngs=nnx.Rngs(0)),
    "resnet": lambda: ResNet(ResNetConfig(8, (1, 1), 8, small=True), rngs=nnx.Rngs(0)),
}
PIPELINE = {"layer": "model", "batch": ("data", tp.chunks(2))}
RING = {"batch": "data", "seq": "model", "keys": tp.ring("model")}
THOROUGH = pytest.mark.thorough
BY_HAND = [
    pytest.param("gpt", TENSORS, id="gpt, tensors", marks=THOROUGH),
    pytest.param("gpt", {"batch": ("data", "model")}, id="gpt, data", marks=THOROUGH),
    pytest.param("llama", TENSORS, id="llama, tensors", marks=THOROUGH),
    pytest.param("llama", PIPELINE, id="llama, pipeline", marks=THOROUGH),
    pytest.param("llama", RING, id="llama, ring", marks=THOROUGH),
    pytest.param("vit", {"batch": "data", "heads": "model", "mlp": "model"}, id="vit, tensors", marks=THOROUGH),
    pytest.param("vit", PIPELINE, id="vit, pipeline", marks=THOROUGH),
    pytest.param("mixer", {"batch": "data", "tokens": "model", "mlp": "model"}, id="mixer, tensors", marks=THOROUGH),
    pytest.param("mixer", {"batch": "data", "embed": "model"}, id="mixer, features", marks=THOROUGH),
    pytest.param("resnet", {"batch": "data", "y": "model"}, id="resnet, space", marks=THOROUGH),
    pytest.param("resnet", {"batch": "data", "features": "model"}, id="resnet, channels", marks=THOROUGH),
]
WHOLE = dict.fromkeys(("x", "channels", "features", "classes"))
FOUND = [
    pytest.param("llama", {"method": "milp"}, id="llama", marks=THOROUGH),
    pytest.param("resnet", {"method": "exhaustive", "entries": WHOLE}, id="resnet", marks=THOROUGH),
    pytest.param("gpt", {"method": "milp"}, id="gpt", marks=THOROUGH),
    pytest.param("vit", {"method": "milp"}, id="vit", marks=THOROUGH),
    pytest.param("mixer", {"method": "milp"}, id="mixer", marks=THOROUGH),
]


def loss(model: Any, x: Any, targets: Any) -> Any:
    return tp.nnx.cross_entropy(model(x), targets)


def traced(name: str) -> tuple[Any, tuple[Any, ...]]:
    """The loss of a model, and arguments."""
    model, draw = MODELS[name](), np.random.default_rng(0)
    if name in ("gpt", "llama"):
        x, targets, kind = draw.integers(0, 32, (8, 8), np.int32), TOKENS, tp.TensorType(TOKENS, jnp.int32)
    else:
        x, targets, kind = draw.normal(size=(4, 16, 16, 3)).astype(np.float32), {"batch": 4}, tp.TensorType(IMAGES)
    labels = draw.integers(0, 8, tuple(targets.values()), np.int32)
    return tp.trace(loss, model, kind, tp.TensorType(targets, jnp.int32)), (nnx.state(model), x, labels)


def check(plan: Any, args: Any, name: str) -> None:
    # Sums that gradients of statistics share, at most: XLA merges some of them.
    assert_contract(plan, bounded=name == "resnet")
    assert_same(plan, args, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "entries"), BY_HAND)
def test_plans_by_hand(name: str, entries: Any, mesh2x4: Any) -> None:
    graph, args = traced(name)
    plan = tp.plan(graph, mesh2x4, entries)
    check(plan, args, name)
    assert plan.collectives()


@pytest.mark.parametrize(("name", "options"), FOUND)
def test_plans_that_are_found(name: str, options: Any, mesh2x4: Any) -> None:
    graph, args = traced(name)
    memory = tp.plan(graph, mesh2x4).memory(grad=True).total // 2
    plan = tp.search(graph, mesh2x4, "h100", memory, grad=True, seed=0, **options)
    assert plan.entries and plan.memory(grad=True).total <= memory
    check(plan, args, name)
