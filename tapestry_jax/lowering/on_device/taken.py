"""Cells at places that only the device knows, written so that XLA for CPUs reads the right ones."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax


def take_cells(array: Any, places: Any, axis: int) -> Any:
    """The cells of one axis at some places; gradients go back to them.

    A gather of one place is a slice here. XLA would make one of it as well and call it `dynamic-slice.12`, and JAX's
    own slices are called `dynamic_slice.12`. Where both stand in one fused loop of a CPU, both names become that of
    one function, and one slice reads what the other should. No two of JAX's own slices have one name.

    Args:
      array: shape `(..., n, ...)`.
      places: integers, shape `(k,)`, each of them from 0 to `n - 1`.
      axis: the axis of size `n`.

    Returns:
      Shape `(..., k, ...)`.
    """
    if places.shape == (1,):
        return lax.dynamic_slice_in_dim(array, places[0], 1, axis)
    return jnp.take(array, places, axis=axis, mode="clip")
