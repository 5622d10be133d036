"""Arguments on devices that JAX holds in one way alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp


def noisy(key, x):
    return x + jax.random.normal(key, x.shape)


@pytest.mark.parametrize("item", ["data", tp.padded("data")], ids=str)
def test_random_keys_whose_words_lie_in_pieces_are_refused(item):
    """Once an AssertionError of JAX, or a TypeError."""
    key, x = jax.random.key(3), jnp.ones((8, 4))
    graph = tp.lift(noisy, key, x, names={"key": "words", "x": "b d"})
    plan = tp.plan(graph, tp.mesh(data=2), {"b": "data"}, inputs={"key": {"words": item}})
    with pytest.raises(tp.PlanError, match=r"plan\.put cannot lay out `key`[\s\S]*`words`, over data[\s\S]*key_data"):
        plan.put(key, x)
    words = jax.random.key_data(key)
    np.testing.assert_allclose(plan.compile()(*plan.put(words, x)), noisy(key, x), rtol=1e-6)
