"""Attention as others write it: hidden scores are a number, and rows that see no key what that makes of them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.numerics.attention_kernel import AttentionKernel, DenseAttention


@dataclass(frozen=True)
class FilledAttention(AttentionKernel):
    """A block of queries against a block of keys whose hidden scores have a value.

    Attributes:
      fill: what stands in the place of hidden scores; a row that sees no key weighs all keys alike where it is finite.
    """

    fill: float = float("-inf")

    @property
    def hidden(self) -> float:
        """The score of what is hidden."""
        return self.fill


@dataclass(frozen=True)
class FilledDense(DenseAttention):
    """The same, with all keys at once."""

    fill: float = float("-inf")

    @property
    def hidden(self) -> float:
        """The score of what is hidden."""
        return self.fill

    def divided(self, out: Any, total: Any) -> Any:
        """The quotient, NaN where nothing is seen."""
        return out / total


@dataclass(frozen=True)
class Quotient:
    """Present the state of attention as the quotient that `softmax` is: NaN where nothing is seen.

    Attributes:
      dtype: of the output.
    """

    dtype: str

    def __call__(self, state: Any) -> Any:
        """The output of one query."""
        _, norm, out = state
        return (out / jnp.reshape(norm, jnp.shape(norm) + (1,) * (jnp.ndim(out) - jnp.ndim(norm)))).astype(self.dtype)
