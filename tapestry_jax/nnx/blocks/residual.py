"""The block of transformers: attention, then a map of every position, both on top of what comes in."""

from __future__ import annotations

from typing import Any

from combinators.recording.value import Value
from tapestry_jax.nnx.modules.sequence_layer import SequenceLayer


class Residual(SequenceLayer):
    """`x + attention(attention_norm(x))`, then `x + mlp(mlp_norm(x))`.

    A subclass makes the four parts.

    Attributes:
      attention_norm: before the attention.
      attention: mixes positions.
      mlp_norm: before the map.
      mlp: acts on every position.
    """

    attention_norm: Any
    attention: Any
    mlp_norm: Any
    mlp: Any

    def forward(self, x: Value) -> Value:
        """Attend, then transform every position, both on top of `x`."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))
