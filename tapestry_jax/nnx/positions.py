"""Rotary positions: pairs of features turned by angles that grow with the coordinate."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.recording.value import Value


@dataclass(frozen=True)
class Rotate:
    """Turn the pairs `(x[i], x[i + d / 2])` of the last axis by `position * base^(-2 i / d)`.

    Attributes:
      base: of the wavelengths.
      axis: of the positions, counted from the end.
    """

    base: float
    axis: int

    def __call__(self, x: Any, positions: Any) -> Any:
        """Shape and dtype of `x`; angles in at least 32 bits."""
        half = x.shape[-1] // 2
        kind = jnp.promote_types(x.dtype, jnp.float32)
        angles = positions.astype(kind)[:, None] * self.base ** (-jnp.arange(half, dtype=kind) / half)
        angles = jnp.reshape(angles, (angles.shape[0], *(1,) * (-self.axis - 2), half))
        first, second = x[..., :half].astype(kind), x[..., half:].astype(kind)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def rotary(x: Value, over: str, base: float) -> Value:
    """Turn the features of `x`, its last axis, by the coordinates along `over`.

    Source: Su et al. 2021, with the pairs of Llama.
    """
    at = x.axis(over)
    names = [f"d{axis}" for axis in range(x.ndim - 1)]
    text = f"{' '.join(names)} [f], @{names[at]} -> {' '.join(names)} [f]"
    return Map(Rotate(base, at - x.ndim), text, name="rotary")(x)
