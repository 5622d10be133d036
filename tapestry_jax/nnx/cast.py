"""Changing the dtype of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.arithmetic import elementwise


@dataclass(frozen=True)
class Cast:
    """A cell-by-cell change of dtype."""

    dtype: np.dtype[Any]

    def __call__(self, block: Any) -> Any:
        """The block in the other dtype."""
        return block.astype(self.dtype)


def cast(value: Any, dtype: Any) -> Any:
    """The value in `dtype`; itself where it has it, or where `dtype` is None."""
    if dtype is None or value.dtype == jnp.dtype(dtype):
        return value
    return elementwise(Cast(jnp.dtype(dtype)), value, name="cast")
