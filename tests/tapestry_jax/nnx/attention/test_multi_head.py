"""Attention to another tensor, masks and rotary positions: as Flax, and as written out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

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
    got, expected = jax.jit(lambda leaves, x: [each(leaves, x) for each in pair])(jax.tree.leaves(state), operands[0])
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
