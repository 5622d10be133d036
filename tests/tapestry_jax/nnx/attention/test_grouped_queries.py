"""Several heads of queries share one of the keys: on arrays, and in a layer, as `jax.nn.dot_product_attention`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.simulated.sampled import sampled


def drawn(*shape: int) -> jax.Array:
    return jnp.asarray(np.float32(np.random.default_rng(sum(shape)).standard_normal(shape)))


def same(f: Any, g: Any, *operands: Any) -> None:
    def both(function: Any) -> Any:
        def squares(*xs: Any) -> Any:
            y = function(*xs)
            return jnp.sum(y**2), y

        return sampled(jax.value_and_grad(squares, tuple(range(len(operands))), has_aux=True), *operands)

    for got, expected in zip(jax.tree.leaves(both(f)), jax.tree.leaves(both(g)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("heads", "shared", "causal"), [(6, 3, True), (6, 1, False)])
def test_arrays(heads: int, shared: int, causal: bool) -> None:
    q, k, v = drawn(2, 5, heads, 4), drawn(2, 5, shared, 4), drawn(2, 5, shared, 4)
    same(
        lambda *xs: tp.attention(*xs, causal=causal),
        lambda *xs: jax.nn.dot_product_attention(*xs, is_causal=causal),
        q,
        k,
        v,
    )


def test_a_layer() -> None:
    layer = tp.nnx.MultiHeadAttention(4, 8, num_key_value_heads=2, rngs=nnx.Rngs(0))
    assert layer.query.kernel.shape == (8, 2, 2, 2) and layer.key.kernel.shape == (8, 2, 2)

    def reference(x: Any) -> Any:
        q = jnp.einsum("bse,ekgd->bskgd", x, layer.query.kernel[...])
        k, v = (jnp.einsum("bse,ekd->bskd", x, part.kernel[...]) for part in (layer.key, layer.value))
        y = jax.nn.dot_product_attention(q.reshape(2, 5, 4, 2), k, v, is_causal=True)
        return jnp.einsum("bsnd,nde->bse", y, layer.out.kernel[...].reshape(4, 2, 8))

    same(layer, reference, drawn(2, 5, 8))


def test_what_is_refused() -> None:
    with pytest.raises(tp.GraphError, match="cannot be shared evenly by 4 heads"):
        tp.nnx.MultiHeadAttention(4, 8, num_key_value_heads=3, rngs=nnx.Rngs(0))
    with pytest.raises(tp.SignatureError, match="no mask or bias"):
        tp.attention(drawn(1, 3, 4, 2), drawn(1, 3, 2, 2), drawn(1, 3, 2, 2), mask=jnp.ones((3, 3), bool))
    with pytest.raises(tp.TapestryError):
        tp.attention(drawn(1, 3, 4, 2), drawn(1, 3, 3, 2), drawn(1, 3, 3, 2))


SIZES: dict[str, Any] = {"layers": 2, "embed": 8, "heads": 4, "vocab": 16, "max_len": 8, "mlp": 8}


@pytest.mark.parametrize("stacked", [False, True])
def test_the_layers_of_a_transformer_share_heads(stacked: bool) -> None:
    """Its blocks are made of the layer above, whose values and gradients are compared there."""
    config = tp.nnx.TransformerConfig(**SIZES, num_key_value_heads=2, stacked=stacked)
    model = nnx.eval_shape(lambda: tp.nnx.Transformer(config, rngs=nnx.Rngs(0)))
    layers, leading = ([model.decoder.layer], (2,)) if stacked else (list(model.decoder), ())
    for layer in layers:
        assert layer.attention.query.kernel.shape == (*leading, 8, 2, 2, 2)
        assert layer.attention.key.kernel.shape == layer.attention.value.kernel.shape == (*leading, 8, 2, 2)
    graph = tp.trace(model, jax.ShapeDtypeStruct((2, 5), jnp.int32))
    assert graph.type_of(graph.outputs[0][1]).shape == (2, 5, 16)


@pytest.mark.parametrize(
    ("shared", "told"),
    [(3, "num_key_value_heads is 3, which does not divide heads, 4"), (0, "num_key_value_heads is 0")],
)
def test_a_config_with_heads_that_cannot_be_shared_is_refused(shared: int, told: str) -> None:
    with pytest.raises(tp.GraphError, match=told):
        tp.nnx.TransformerConfig(**SIZES, num_key_value_heads=shared)
