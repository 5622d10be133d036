"""GPT: equal to a plain Flax model with the same weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.models import GPT, GPTConfig
from tests.simulated.sampled import computed

TOKENS = np.random.default_rng(1).integers(0, 23, (2, 6)).astype(np.int32)


class FlaxBlock(nnx.Module):
    def __init__(self, rngs):
        norm = lambda: nnx.LayerNorm(8, epsilon=1e-5, rngs=rngs)  # noqa: E731
        self.attention_norm, self.mlp_norm = norm(), norm()
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.mlp = nnx.Dict(up=nnx.Linear(8, 32, rngs=rngs), down=nnx.Linear(32, 8, rngs=rngs))

    def __call__(self, x):
        x = x + self.attention(self.attention_norm(x), mask=nnx.make_causal_mask(jnp.ones(x.shape[:-1])))
        return x + self.mlp["down"](nnx.gelu(self.mlp["up"](self.mlp_norm(x))))


class FlaxGPT(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.positions = nnx.Embed(23, 8, rngs=rngs), nnx.Embed(6, 8, rngs=rngs)
        self.decoder = nnx.List([FlaxBlock(rngs) for _ in range(2)])
        self.norm = nnx.LayerNorm(8, epsilon=1e-5, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) + self.positions(jnp.arange(tokens.shape[1]))
        for block in self.decoder:
            x = block(x)
        return self.embed.attend(self.norm(x))


# On the tensors of a checkpoint it is held by published/test_published.py.
@pytest.mark.thorough
def test_gpt_equals_flax_with_gradients():
    ours, theirs = GPT(GPTConfig(2, 8, 2, 23, max_len=6, stacked=False), rngs=nnx.Rngs(0)), FlaxGPT(nnx.Rngs(1))
    nnx.update(theirs, nnx.state(ours))

    graphdef, state = nnx.split(theirs)

    def flax_loss(state):
        logits = nnx.merge(graphdef, state)(TOKENS)
        return optax.softmax_cross_entropy_with_integer_labels(logits, TOKENS).mean()

    expected, wanted = computed(jax.value_and_grad(flax_loss), state)
    graph = tp.trace(lambda model, tokens: tp.nnx.cross_entropy(model(tokens), tokens), ours, TOKENS)
    value, found = computed(jax.value_and_grad(graph), nnx.state(ours), TOKENS)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    leaves = zip(jax.tree.leaves_with_path(found), jax.tree.leaves(nnx.to_pure_dict(wanted)), strict=True)
    for (path, a), b in leaves:
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=jax.tree_util.keystr(path))


def test_gpt_has_the_parameters_of_gpt2():
    model = nnx.eval_shape(lambda: GPT(GPTConfig(12, 768, 12, 50257), rngs=nnx.Rngs(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model))) == 124_439_808
