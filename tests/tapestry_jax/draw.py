"""Inputs of the tests: the same numbers in every run."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """Standard normal float32, times `scale`."""
    # Rounded by NumPy: JAX would compile a conversion for every shape.
    return jnp.asarray((np.random.default_rng((seed, *shape)).normal(size=shape) * scale).astype(np.float32))


def named(text: str, *args: Any) -> list[tp.TensorType]:
    """The types of arrays with axis names: `named("row col, col", x, scale)`."""
    names = [operand.split() for operand in text.split(",")]
    return [
        tp.TensorType(list(zip(axes, jnp.shape(arg), strict=True)), jnp.result_type(arg))
        for axes, arg in zip(names, args, strict=True)
    ]
