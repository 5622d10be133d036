"""Several heads of queries share one of the keys: on arrays, and in a layer, as `jax.nn.dot_product_attention`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp


def drawn(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def same(f: Any, g: Any, *operands: Any) -> None:
    def both(function: Any) -> Any:
        def squares(*xs: Any) -> Any:
            y = function(*xs)
            return jnp.sum(y**2), y

        return jax.jit(jax.value_and_grad(squares, tuple(range(len(operands))), has_aux=True))(*operands)

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


def grouped(**options: Any) -> Any:
    return tp.nnx.Transformer(tp.nnx.TransformerConfig(**SIZES, num_key_value_heads=2, **options), rngs=nnx.Rngs(0))


def by_path(state: Any) -> dict[str, Any]:
    return {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(state)}


def shared_out(path: str, array: Any) -> Any:
    """A parameter of the model with shared heads, as a model without them has it."""
    if ".attention.key." in path or ".attention.value." in path:
        return jnp.repeat(array, 2, axis=array.ndim - 2)
    merged = {"query.kernel": (8, 4, 2), "query.bias": (4, 2), "out.kernel": (4, 2, 8)}
    return next((array.reshape(shape) for end, shape in merged.items() if path.endswith(end)), array)


def loss(model: Any, tokens: Any) -> Any:
    return tp.nnx.cross_entropy(model(tokens), tokens)


def test_a_transformer_is_the_one_whose_heads_share_nothing_with_the_shared_ones_repeated() -> None:
    tokens = jax.random.randint(jax.random.key(1), (2, 5), 0, 16)
    model, whole = grouped(), tp.nnx.Transformer(tp.nnx.TransformerConfig(**SIZES), rngs=nnx.Rngs(1))
    given = by_path(nnx.state(model))
    for path, variable in nnx.to_flat_state(nnx.state(whole)):
        variable.set_value(shared_out(".".join(map(str, path)), given[".".join(map(str, path))]))
        nnx.update(whole, nnx.from_flat_state([(path, variable)]))
    np.testing.assert_allclose(model(tokens), whole(tokens), rtol=1e-5, atol=1e-6)
    found, expected = by_path(nnx.grad(loss)(model, tokens)), by_path(nnx.grad(loss)(whole, tokens))
    for path, array in found.items():
        other = expected[path]
        if ".attention.key." in path or ".attention.value." in path:
            heads = other.ndim - 2
            other = other.reshape(*other.shape[:heads], 2, 2, other.shape[-1]).sum(heads + 1)
        np.testing.assert_allclose(array, other.reshape(array.shape), rtol=1e-4, atol=1e-6, err_msg=path)


def test_a_stacked_transformer_shares_heads_as_well() -> None:
    tokens = jax.random.randint(jax.random.key(1), (2, 5), 0, 16)
    plain, stacked = grouped(), grouped(stacked=True)
    assert stacked.decoder.layer.attention.key.kernel.shape == (2, 8, 2, 2)
    np.testing.assert_allclose(stacked(tokens), plain(tokens), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shared", "told"),
    [(3, "num_key_value_heads is 3, which does not divide heads, 4"), (0, "num_key_value_heads is 0")],
)
def test_a_config_with_heads_that_cannot_be_shared_is_refused(shared: int, told: str) -> None:
    with pytest.raises(tp.GraphError, match=told):
        tp.nnx.TransformerConfig(**SIZES, num_key_value_heads=shared)
