"""The block of transformers: attention, then a map of every position, both on top of what comes in."""

from __future__ import annotations

from typing import Any

from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module


class Residual(Module):
    """`x + attention(attention_norm(x))`, then `x + mlp(mlp_norm(x))`.

    A subclass makes the four parts.

    Attributes:
      features: size of `embed`.
      attention_norm: before the attention.
      attention: mixes positions.
      mlp_norm: before the map.
      mlp: acts on every position.
    """

    features: int
    attention_norm: Any
    attention: Any
    mlp_norm: Any
    mlp: Any

    @property
    def signature(self) -> str:
        """Positions and features come last."""
        return "... seq embed -> ... seq embed"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `embed`."""
        return {"embed": self.features}

    def forward(self, x: Value) -> Value:
        """Attend, then transform every position, both on top of `x`."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))
