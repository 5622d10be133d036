"""Attention to another tensor, masks and rotary positions: as Flax, and as written out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.simulated.sampled import computed, sampled

DRAW = np.random.default_rng(0)
X, MEMORY = (np.float32(DRAW.standard_normal(shape)) for shape in ((2, 6, 8), (2, 4, 5)))
MASK = DRAW.integers(0, 2, (2, 6, 4)).astype(bool)
MASK[..., 0] = True  # a row that sees no key gives zeros here, and means of what is hidden in Flax


def same(ours: Any, theirs: Any, *operands: Any) -> None:
    """Values and gradients by parameters and by the first operand."""
    state = nnx.state(ours)
    nnx.update(theirs, state)

    def run(module: Any, call: Any) -> Any:
        graphdef = nnx.graphdef(module)

        def scored(leaves: Any, x: Any) -> Any:
            kind = jax.tree.structure(nnx.state(module))
            y = call(nnx.merge(graphdef, jax.tree.unflatten(kind, leaves)), x, *operands[1:])
            return jnp.sum(jnp.sin(y)), y

        return jax.value_and_grad(scored, (0, 1), has_aux=True)

    def ours_of(module: Any, *xs: Any) -> Any:
        return module(*xs)

    def theirs_of(module: Any, x: Any, memory: Any, mask: Any) -> Any:
        return module(x, memory, mask=mask[:, None])

    pair = run(ours, ours_of), run(theirs, theirs_of)
    got, expected = (computed(each, jax.tree.leaves(state), operands[0]) for each in pair)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_keys_of_another_tensor_behind_a_mask_are_those_of_flax() -> None:
    options: dict[str, Any] = {"in_kv_features": 5, "rngs": nnx.Rngs(0)}
    ours = tp.nnx.MultiHeadAttention(2, 8, cross=True, masked=True, **options)
    same(ours, nnx.MultiHeadAttention(2, 8, decode=False, **options), X, MEMORY, MASK)
    types = (
        tp.TensorType({"batch": 2, "seq": 6, "embed": 8}),
        tp.TensorType({"batch": 2, "keys": 4, "kv_embed": 5}),
        tp.TensorType({"batch": 2, "seq": 6, "keys": 4}, bool),
    )
    plan = tp.plan(tp.trace(ours, *types), tp.mesh(data=2, model=2), {"keys": "data", "heads": "model"})
    np.testing.assert_allclose(plan.compile()(nnx.state(ours), X, MEMORY, MASK), ours(X, MEMORY, MASK), atol=1e-5)


def turned(x: Any, base: float) -> Any:
    """Pairs as complex numbers, in NumPy."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] * base ** (-np.arange(half) / half)
    pairs = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None]
    return np.concatenate([pairs.real, pairs.imag], -1)


def test_positions_are_turned_alike_on_every_mesh() -> None:
    layer = tp.nnx.MultiHeadAttention(2, 8, num_key_value_heads=1, rotary_base=100.0, use_bias=False, rngs=nnx.Rngs(0))
    q = np.einsum("bse,ehgd->bshgd", X, layer.query.kernel[...])[:, :, 0]
    k, v = (np.einsum("bse,ehd->bshd", X, part.kernel[...]) for part in (layer.key, layer.value))
    q, k = (np.float32(turned(part, 100.0)) for part in (q, k))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    expected = np.einsum("bsgd,gde->bse", y, layer.out.kernel[...][0])
    np.testing.assert_allclose(layer(X), expected, rtol=1e-4, atol=1e-5)
    graph = tp.trace(layer, tp.TensorType({"batch": 2, "seq": 6, "embed": 8}))
    plan = tp.plan(graph, tp.mesh(data=2), {"seq": "data", "keys": tp.ring("data")})
    np.testing.assert_allclose(plan.compile()(nnx.state(layer), X), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("heads", "base"), [(8, 100.0), (2, -1.0)])
def test_positions_that_cannot_be_turned_are_told(heads: int, base: float) -> None:
    with pytest.raises(tp.GraphError, match="no rotary positions of MultiHeadAttention"):
        tp.nnx.MultiHeadAttention(heads, 8, rotary_base=base, rngs=nnx.Rngs(0))


def test_weights_are_dropped_alike_on_every_mesh() -> None:
    """As written out with the same bits, in value and gradient; the second call draws others, and eval() none."""
    layer = tp.nnx.MultiHeadAttention(2, 8, dropout_rate=0.4, broadcast_dropout=False, rngs=nnx.Rngs(0))
    assert layer.rngs is not None
    kept = tp.random.bernoulli(
        jax.random.fold_in(layer.rngs.key[...], 0), 0.6, like=jax.ShapeDtypeStruct((2, 6, 2, 6), jnp.float32)
    )

    def written_out(state: Any, x: Any) -> Any:
        q, k, v = (
            jnp.einsum("bse,ehd->bshd", x, state[part]["kernel"][...]) + state[part]["bias"][...]
            for part in ("query", "key", "value")
        )
        scores = jnp.einsum("bqhd,bkhd->bqhk", q, k) / 2
        weights = jax.nn.softmax(jnp.where(jnp.tri(6, dtype=bool)[:, None], scores, -jnp.inf))
        y = jnp.einsum("bqhk,bkhd->bqhd", jnp.where(kept, weights / 0.6, 0), v)
        return jnp.einsum("bqhd,hde->bqe", y, state["out"]["kernel"][...]) + state["out"]["bias"][...]

    graph, state = tp.trace(layer, tp.TensorType({"batch": 2, "seq": 6, "embed": 8})), nnx.state(layer)
    params, rest = nnx.split_state(state, nnx.Param, ...)
    plan = tp.plan(graph, tp.mesh(data=2, model=2), {"keys": "data", "heads": "model"})
    plan.verify()
    runs = [written_out, *(lambda *xs, run=run: run(*xs)[0] for run in (graph, plan.compile()))]
    expected, *found = (
        by(
            jax.value_and_grad(lambda p, x, run=run: jnp.sum(jnp.sin(run(nnx.merge_state(p, rest), x))), (0, 1)),
            params,
            X,
        )
        for by, run in zip((computed, computed, sampled), runs, strict=True)
    )
    for got in found:
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    first, second = layer(X), layer(X)
    assert not np.allclose(first, second) and layer.rngs.count[...] == 2
    layer.eval()
    np.testing.assert_array_equal(layer(X), layer(X))
    assert tp.Graph.from_json(graph.to_json()).key == graph.key


def test_a_rate_that_leaves_nothing_is_told() -> None:
    with pytest.raises(tp.GraphError, match="dropout_rate= of MultiHeadAttention is no share"):
        tp.nnx.MultiHeadAttention(2, 8, dropout_rate=1.0, rngs=nnx.Rngs(0))
