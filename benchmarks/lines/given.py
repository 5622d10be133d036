"""What the two programs of a pair are given alike: numbers to compute with, and parameters to begin with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


def normal(*shape: int, seed: int = 0) -> jax.Array:
    """Numbers to compute with."""
    return jnp.asarray(np.float32(np.random.default_rng(seed).standard_normal(shape)))


def whole(*shape: int, below: int, seed: int = 0) -> jax.Array:
    """Integers from 0 on, such as tokens, labels and keys."""
    return jnp.asarray(np.random.default_rng(seed).integers(0, below, shape).astype(np.int32))


def filled(model: Any) -> Any:
    """The model with parameters that follow from their order and shapes alone, so that both programs have the same."""
    state = nnx.state(model, nnx.Param)
    leaves, tree = jax.tree.flatten(state)
    nnx.update(model, jax.tree.unflatten(tree, [0.3 * normal(*leaf.shape, seed=at) for at, leaf in enumerate(leaves)]))
    return model
