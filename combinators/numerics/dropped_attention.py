"""The kernels of attention some of whose weights are left out after the softmax."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.numerics.attention_kernel import AttentionKernel, Axes, DenseAttention, Scores


@dataclass(frozen=True)
class DroppedScores(Scores):
    """Scores, and behind mask and bias which of their weights are kept.

    Attributes:
      kept: axes of that operand, bool.
      share: of what is kept, by which weights are divided.
    """

    kept: Axes = ()
    share: float = 1.0

    @property
    def _place(self) -> int:
        return 3 + sum(each is not None for each in (self.mask, self.bias))

    def _scores(self, blocks: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        return super()._scores((*blocks[: self._place], *blocks[self._place + 1 :]))

    def _left(self, weights: Any, blocks: tuple[Any, ...]) -> Any:
        """The weights that values are summed by; the sum of weights is that of all."""
        kept = self._spread(blocks[self._place], self.kept)
        return self._hide(weights / self.share, kept, 0.0, blocks[0])


@dataclass(frozen=True)
class DroppedKernel(DroppedScores, AttentionKernel):
    """A block of queries against a block of keys: the state of attention whose sum of values leaves some out."""

    def _state(self, *blocks: Any) -> Any:
        maximum, weights, value = self._weights(blocks)
        left, out = self._left(weights, blocks), (*self.rows, self.value[-1])
        return maximum, jnp.sum(weights, axis=-1), self._weighted(left, value, out)


@dataclass(frozen=True)
class DroppedAttention(DroppedScores, DenseAttention):
    """The whole softmax at once, for uncut keys."""

    def __call__(self, *blocks: Any) -> Any:
        """The result block."""
        _, weights, value = self._weights(blocks)
        total = jnp.sum(weights, axis=-1)
        total = jnp.transpose(total, [self.rows.index(name) for name in self.output[:-1]])[..., None]
        left = self._left(weights, blocks)
        return self.divided(self._weighted(left, value, self.output), total).astype(value.dtype)
