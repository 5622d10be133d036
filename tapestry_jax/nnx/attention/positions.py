"""Rotary positions: pairs of features turned by angles that grow with the coordinate."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from combinators.arguments import read_count, read_number
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.recording.value import Value


@dataclass(frozen=True)
class RotaryScaling:
    """Slower rotary positions, for longer sequences than a model was first trained on.

    With `original`, as in Llama 3: of `n` turns over the first length, pairs with less than `low` turns become `factor`
    times slower, pairs with more than `high` stay, and those in between go over from one to the other. Without it all
    become slower.

    Attributes:
      factor: how many times slower.
      original: positions that the model was first trained on.
      low: turns over these positions.
      high: turns over these positions, more than `low`.

    Raises:
      GraphError: when a number is not what it should be.
    """

    factor: float
    original: int | None = None
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        own = "of RotaryScaling"
        for name in ("factor", "low", "high"):
            object.__setattr__(self, name, read_number(getattr(self, name), f"{name}= {own}"))
        if self.original is not None:
            object.__setattr__(self, "original", read_count(self.original, f"original= {own}"))
        if self.factor <= 0 or not 0 <= self.low < self.high:
            details = (f"factor is {self.factor!r}, low {self.low!r}, high {self.high!r}",)
            remedy = "Pass a positive factor, and low=1.0, high=4.0 as Llama 3 does."
            raise GraphError(message("no such scaling of rotary positions", *details, remedy=remedy))

    def __call__(self, frequencies: Any) -> Any:
        """The shape of `frequencies`, in radians for each position."""
        if self.original is None:
            return frequencies / self.factor
        turns = self.original * frequencies / (2 * math.pi)
        kept = jnp.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


@dataclass(frozen=True)
class Rotate:
    """Turn the pairs `(x[i], x[i + d / 2])` of the last axis by `position * base^(-2 i / d)`.

    Attributes:
      base: of the wavelengths.
      axis: of the positions, counted from the end.
      scaling: of the angles; None leaves them.
    """

    base: float
    axis: int
    scaling: RotaryScaling | None = None

    def __call__(self, x: Any, positions: Any) -> Any:
        """Shape and dtype of `x`; angles in at least 32 bits."""
        half = x.shape[-1] // 2
        kind = jnp.promote_types(x.dtype, jnp.float32)
        frequencies = self.base ** (-jnp.arange(half, dtype=kind) / half)
        frequencies = frequencies if self.scaling is None else self.scaling(frequencies)
        angles = positions.astype(kind)[:, None] * frequencies
        angles = jnp.reshape(angles, (angles.shape[0], *(1,) * (-self.axis - 2), half))
        first, second = x[..., :half].astype(kind), x[..., half:].astype(kind)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def rotary(
    x: Value, over: str, base: float, scaling: RotaryScaling | None = None, positions: Value | None = None
) -> Value:
    """Turn the features of `x`, its last axis, by positions, which are by default the coordinates along `over`.

    Source: Su et al. 2021, with the pairs of Llama.
    """
    at = x.axis(over)
    names = [f"d{axis}" for axis in range(x.ndim - 1)]
    given = names[at] if positions is not None else f"@{names[at]}"
    text = f"{' '.join(names)} [f], {given} -> {' '.join(names)} [f]"
    operands = (x,) if positions is None else (x, positions)
    return Map(Rotate(base, at - x.ndim, scaling), text, name="rotary")(*operands)
