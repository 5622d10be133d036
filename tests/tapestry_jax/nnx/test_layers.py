"""Every layer equals Flax's own, in value and gradient, given the same weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

X = jax.random.normal(jax.random.key(1), (2, 6, 8))
TOKENS = jax.random.randint(jax.random.key(2), (2, 6), 0, 11)


def rngs() -> nnx.Rngs:
    return nnx.Rngs(0)


def randomise(module: nnx.Module) -> None:
    """Zeros and ones would hide a parameter that is not used."""
    leaves, tree = jax.tree.flatten(nnx.state(module))
    keys = jax.random.split(jax.random.key(7), len(leaves))
    nnx.update(
        module, jax.tree.unflatten(tree, [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)])
    )


PAIRS = {
    "linear": lambda: (tp.nnx.Linear(8, 5, rngs=rngs()), nnx.Linear(8, 5, rngs=rngs()), X),
    "linear without bias": lambda: (
        tp.nnx.Linear(8, 5, use_bias=False, rngs=rngs()),
        nnx.Linear(8, 5, use_bias=False, rngs=rngs()),
        X[0, 0],
    ),
    "linear general": lambda: (
        tp.nnx.LinearGeneral(8, (3, 4), dims=("embed", ("heads", "head_dim")), rngs=rngs()),
        nnx.LinearGeneral(8, (3, 4), rngs=rngs()),
        X,
    ),
    "linear general of two": lambda: (
        tp.nnx.LinearGeneral((6, 8), 5, dims=(("seq", "embed"), "out"), rngs=rngs()),
        nnx.LinearGeneral((6, 8), 5, axis=(-2, -1), rngs=rngs()),
        X,
    ),
    "embed": lambda: (tp.nnx.Embed(11, 8, rngs=rngs()), nnx.Embed(11, 8, rngs=rngs()), TOKENS),
    "layer norm": lambda: (tp.nnx.LayerNorm(8, rngs=rngs()), nnx.LayerNorm(8, rngs=rngs()), X),
    "layer norm, other options": lambda: (
        tp.nnx.LayerNorm(8, epsilon=1e-2, use_bias=False, rngs=rngs()),
        nnx.LayerNorm(8, epsilon=1e-2, use_bias=False, rngs=rngs()),
        X + 1.0,
    ),
    "rms norm": lambda: (tp.nnx.RMSNorm(8, rngs=rngs()), nnx.RMSNorm(8, rngs=rngs()), X),
    "attention": lambda: (
        tp.nnx.MultiHeadAttention(2, 8, 12, rngs=rngs()),
        CausalAttention(2, 8, 12, rngs=rngs()),
        X,
    ),
    "attention, not causal": lambda: (
        tp.nnx.MultiHeadAttention(4, 8, causal=False, use_bias=False, rngs=rngs()),
        nnx.MultiHeadAttention(4, 8, use_bias=False, decode=False, rngs=rngs()),
        X,
    ),
    "mlp": lambda: (tp.nnx.MLP(8, 16, rngs=rngs()), FlaxMLP(8, 16, rngs=rngs()), X),
}


class CausalAttention(nnx.MultiHeadAttention):
    def __call__(self, x):
        return super().__call__(x, mask=nnx.make_causal_mask(jnp.ones(x.shape[:-1])), decode=False)


class FlaxMLP(nnx.Module):
    def __init__(self, features: int, hidden: int, *, rngs: nnx.Rngs):
        self.up, self.down = nnx.Linear(features, hidden, rngs=rngs), nnx.Linear(hidden, features, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x)))


def weighted(module, x):
    """A scalar whose gradient tells every cell of the output apart, and the output."""
    y = module(x)
    return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))), y


@pytest.mark.parametrize("name", PAIRS)
def test_layer_equals_flax_with_gradients(name):
    ours, theirs, x = PAIRS[name]()
    randomise(ours)
    nnx.update(theirs, nnx.state(ours))
    integers = x.dtype == jnp.int32

    def run(module, x):
        (value, y), grads = nnx.value_and_grad(weighted, argnums=0 if integers else (0, 1), has_aux=True)(module, x)
        return value, y, nnx.to_pure_dict(grads if integers else grads[0]), None if integers else grads[1]

    value, y, grads, slope = nnx.jit(run)(ours, x)
    expected, output, wanted, wanted_slope = nnx.jit(run)(theirs, x)
    assert jax.tree.structure(grads) == jax.tree.structure(wanted)
    np.testing.assert_allclose(y, output, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    # The key's bias has no gradient but rounding: what is large is so beside all gradients.
    scale = max(float(jnp.abs(b).max()) for b in jax.tree.leaves((wanted, wanted_slope)))
    for (path, a), b in zip(
        jax.tree.leaves_with_path((grads, slope)), jax.tree.leaves((wanted, wanted_slope)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * scale, err_msg=str(path))
    np.testing.assert_allclose(ours(x), output, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["linear", "linear general", "embed", "attention, not causal"])
def test_layer_starts_from_the_weights_of_flax(name):
    ours, theirs, _ = PAIRS[name]()
    pairs = zip(jax.tree.leaves(nnx.state(ours)), jax.tree.leaves(nnx.state(theirs)), strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [None, jnp.bfloat16])
def test_layer_computes_in_the_dtype_of_flax(dtype):
    for ours, theirs in (
        (tp.nnx.Linear(8, 5, dtype=dtype, rngs=rngs()), nnx.Linear(8, 5, dtype=dtype, rngs=rngs())),
        (tp.nnx.LayerNorm(8, dtype=dtype, rngs=rngs()), nnx.LayerNorm(8, dtype=dtype, rngs=rngs())),
    ):
        for x in (X, X.astype(jnp.bfloat16)):
            got, expected = ours(x), theirs(x)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got.astype(jnp.float32), expected.astype(jnp.float32), rtol=2e-2, atol=2e-2)


def test_embed_takes_negative_and_absent_tokens_as_flax():
    ours, theirs = tp.nnx.Embed(5, 3, rngs=rngs()), nnx.Embed(5, 3, rngs=rngs())
    tokens = jnp.array([-6, -5, -1, 0, 4, 5])
    np.testing.assert_array_equal(ours(tokens), theirs(tokens))


def test_position_embed_takes_coordinates():
    ours = tp.nnx.PositionEmbed(9, 3, rngs=rngs())
    graph = tp.trace(ours, tp.TensorType({"batch": 2, "seq": 6}, jnp.int32))
    np.testing.assert_array_equal(graph(nnx.state(ours), TOKENS), ours.embedding[...][:6])
    assert graph.type_of(graph.outputs[0][1]).names == ("seq", "embed")
