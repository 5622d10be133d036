"""Models: a training step of `tp.nnx`, buffers given away, a Flax transformer that was lifted, the gallery."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.example_modules import GALLERY, modules_of
from tests.examples.test_gallery import TINY
from tests.gpu.held import assert_alike, assert_planned, both
from tests.tapestry_jax.lifting.test_models import NAMES, Decoder

pytestmark = pytest.mark.gpu

TOKENS = np.random.default_rng(0).integers(0, 32, (4, 8)).astype(np.int32)
PLANS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "axes": ({"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}, {}),
    "chunks": ({"batch": ("data", tp.chunks(2)), "vocab": tp.chunks(4), "keys": tp.chunks(2)}, {}),
    "computed again": ({"batch": "data"}, {"remat": {"decoder": True}}),
}


def transformer(stacked: bool, dtype: Any = jnp.float32) -> Any:
    config = tp.nnx.TransformerConfig(
        layers=2, embed=16, heads=4, vocab=32, max_len=8, stacked=stacked, param_dtype=dtype
    )
    return tp.nnx.Transformer(config, rngs=nnx.Rngs(0))


def loss(model: Any, tokens: Any, targets: Any) -> Any:
    return tp.nnx.cross_entropy(model(tokens), targets)


@pytest.mark.parametrize("stacked", [False, True], ids=["layers", "stacked"])
@pytest.mark.parametrize("name", PLANS)
def test_a_step_of_training_gives_its_buffers_away(name: str, stacked: bool, mesh: Any) -> None:
    entries, options = PLANS[name]
    module = transformer(stacked)
    graph = tp.trace(loss, module, TOKENS, TOKENS)
    plan = tp.plan(graph, mesh, entries, **options)
    plan.verify()
    rule = optax.sgd(0.1, momentum=0.9)

    def step(run: Any, state: Any, memory: Any, tokens: Any, targets: Any) -> Any:
        value, slopes = jax.value_and_grad(run)(state, tokens, targets)
        updates, memory = rule.update(slopes, memory, state)
        return optax.apply_updates(state, updates), memory, value

    start = jax.tree.map(np.asarray, nnx.state(module))
    state, tokens, targets = plan.put(start, TOKENS, np.roll(TOKENS, -1, 1))
    here, memory = jax.jit(partial(step, plan.compile()), donate_argnums=(0, 1)), jax.jit(rule.init)(state)
    there, theirs, their_memory = jax.jit(partial(step, graph)), start, rule.init(start)
    for _ in range(3):
        given = jax.tree.leaves(state)
        state, memory, value = here(state, memory, tokens, targets)
        assert all(leaf.is_deleted() for leaf in given)
        theirs, their_memory, expected = there(theirs, their_memory, TOKENS, np.roll(TOKENS, -1, 1))
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert_alike(state, theirs, 1e-4, "after three steps")


def test_a_step_in_bfloat16(mesh: Any) -> None:
    module = transformer(True, jnp.bfloat16)
    graph = tp.trace(loss, module, TOKENS, TOKENS)
    args = jax.tree.map(np.asarray, nnx.state(module)), TOKENS, np.roll(TOKENS, -1, 1)
    assert_planned(graph, args, mesh, {"batch": "data", "heads": "model"}, tolerance=6e-2)


def test_a_lifted_transformer_of_flax(mesh: Any) -> None:
    model = Decoder(2, 16, 4, 32, nnx.Rngs(0))
    graph = tp.lift(model, TOKENS, names=NAMES)
    plan = tp.plan(graph, mesh, {"batch": ("data", tp.chunks(2)), "heads": "model", "mlp": "model"})
    plan.verify()
    definition, state = nnx.split(model)

    def plain(state: Any, tokens: Any) -> Any:
        return nnx.merge(definition, state)(tokens)

    args = jax.tree.map(np.asarray, state), TOKENS
    assert_alike(both(plan.compile(), *plan.put(*args)), both(plain, *args), 2e-5, "beside Flax on the CPU")


@pytest.fixture
def load() -> Iterator[Any]:
    with modules_of(GALLERY) as load:
        yield load


@pytest.mark.parametrize("row", sorted(TINY.keys() - {"stored_statistics"}))
def test_rows_of_the_gallery(row: str, gpu: Any, load: Any) -> None:
    example = load(row).example(**TINY[row])
    args = jax.tree.map(np.asarray, example.arguments)
    graph = tp.trace(example.program, *args)
    for planned in example.plans:
        mesh = tp.mesh([gpu], **dict.fromkeys(planned.mesh, 1))
        assert math.prod(mesh.shape.values()) == 1
        assert_planned(graph, args, mesh, planned.entries, tolerance=5e-5, **planned.options)
