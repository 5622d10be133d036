"""Keeping two parts of a program apart, so that XLA does not fuse them."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata


def apart_on_cpu(array: Any) -> Any:
    """An `optimization_barrier` that keeps fusion out on a CPU as well; gradients go through one, too.

    XLA removes barriers from programs for CPUs before it fuses. What it does not inline it does not fuse with its
    surroundings, so the barrier stands in a function of its own.
    """
    with set_xla_metadata(inlineable="false"):
        return _barrier(array)


@jax.jit
def _barrier(array: Any) -> Any:
    return lax.optimization_barrier(array)
