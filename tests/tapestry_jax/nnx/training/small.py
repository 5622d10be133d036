"""A trainer of few numbers, whose batches have few rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

import tapestry_jax as tp


def loss(model: Any, x: Any, y: Any) -> Any:
    """It tells a mean of its rows, and a total with its count."""
    found = tp.nnx.mean_squared_error(model(x), y)
    return found, {"double": found + found, "pair": (found, found + found)}


def trainer_of(
    entries: Any = "data", devices: int = 1, rows: int = 4, optimizer: Any = None, **options: Any
) -> tp.nnx.Trainer:
    model = tp.nnx.Linear(4, 2, dims=("embed", "out"), rngs=nnx.Rngs(0))
    types = tp.TensorType({"batch": rows, "embed": 4}), tp.TensorType({"batch": rows, "out": 2})
    mesh = tp.mesh(jax.devices()[:devices], data=devices)
    plan = tp.plan(tp.trace(loss, model, *types), mesh, {"batch": entries})
    return tp.nnx.Trainer(loss, model, optimizer or optax.adam(1e-2), plan, **options)


def batch(step: int, rows: int = 4) -> tuple[Any, Any]:
    random = np.random.default_rng(step)
    return tuple(random.normal(size=(rows, size)).astype(np.float32) for size in (4, 2))


def leaves(trainer: tp.nnx.Trainer) -> list[Any]:
    """What a step changes, but for its number."""
    state = trainer.state
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state.params, state.optimizer, state.ema, state.scale))]
