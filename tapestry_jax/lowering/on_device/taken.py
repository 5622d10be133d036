"""Cells at places that only the device knows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax


def take_cells(array: Any, places: Any, axis: int) -> Any:
    """The cells of one axis at some places; gradients go back to them.

    A gather of one place is written as the slice that XLA would make of it.

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
