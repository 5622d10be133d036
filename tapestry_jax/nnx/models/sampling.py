"""Choosing the next token: by folds over the vocabulary, which a plan may cut, and by numbers that belong to cells."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from combinators import aggregators
from combinators.arguments import is_real, is_whole
from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.leaves import random
from combinators.leaves.fold import fold
from combinators.leaves.map import Map
from combinators.recording.value import Value


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits.

    Attributes:
      temperature: by which logits are divided; at 0 the largest one is taken, the first of equals.
      top_k: how many of the largest logits are drawn from, or None.
      top_p: the share of the probability, of what `top_k` leaves, that the most probable tokens reach that are drawn
        from, or None.

    Raises:
      GraphError: when one is not what it should be.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        heat, most, share = self._given()
        wrong = list[str]()
        if not (is_real(heat) and 0 <= heat < float("inf")):
            wrong.append(f"temperature is {spelt(heat, 40)}, expected a number from 0 on")
        if most is not None and not (is_whole(most) and 1 <= most < 2**31):
            wrong.append(f"top_k is {spelt(most, 40)}, expected at least 1, or None")
        if share is not None and not (is_real(share) and 0 < share <= 1):
            wrong.append(f"top_p is {spelt(share, 40)}, expected a share above 0 and up to 1, or None")
        if wrong:
            raise GraphError(message("tokens cannot be drawn so", *wrong, remedy="Pass other options."))
        object.__setattr__(self, "temperature", float(heat))

    def _given(self) -> tuple[Any, Any, Any]:
        return self.temperature, self.top_k, self.top_p

    @property
    def is_greedy(self) -> bool:
        """Whether the largest logit is taken."""
        return self.temperature == 0

    def choose(self, logits: Value, key: Value) -> Value:
        """A token for every row.

        Args:
          logits: `(batch, vocab)`.
          key: two words; what is drawn is a function of them, the row and the token alone.

        Returns:
          int32 `(batch)`.
        """
        if self.is_greedy:
            return _largest(logits)
        scores = logits.astype(jnp.float32) / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            best = fold(aggregators.TopK(self.top_k), "b v, @v -> b", name="top_k")(scores)
            scores = _keep(scores, best["value"][:, -1], best["index"][:, -1])
        if self.top_p is not None and self.top_p < 1:
            scores = _keep(scores, *Map(Nucleus(self.top_p), "b [v] -> b, b", name="top_p")(scores))
        return _largest(Map(gumbel, name="draw")(scores, random.uniform(key, like=scores)))


@dataclass(frozen=True)
class Nucleus:
    """The last of the most probable tokens that reach a share of the probability together.

    Attributes:
      share: of the probability.
    """

    share: float

    def __call__(self, scores: Any) -> tuple[Any, Any]:
        """Score and number of that token; of equal scores the lower number comes first."""
        order = jnp.argsort(-scores, axis=-1, stable=True)
        sorted_scores = jnp.take_along_axis(scores, order, -1)
        shares = jax.nn.softmax(sorted_scores, -1)
        before = jnp.cumsum(shares, -1) - shares
        last = jnp.maximum(jnp.sum(before < self.share, -1, keepdims=True) - 1, 0)
        number = jnp.take_along_axis(order, last, -1)[..., 0].astype(jnp.int32)
        return jnp.take_along_axis(sorted_scores, last, -1)[..., 0], number


def kept(scores: Any, least: Any, last: Any, at: Any) -> Any:
    """Minus infinity for scores that come behind one of a value and a coordinate, the largest first."""
    least, last = least[:, None], last[:, None]
    return jnp.where((scores > least) | ((scores == least) & (at <= last)), scores, -jnp.inf)


def gumbel(scores: Any, uniform: Any) -> Any:
    """Scores of which the largest one is drawn by their softmax.

    Source: Gumbel 1954; Maddison et al. 2014.
    """
    # Multiples of 2**-24 below 1, of which 0 stands for the middle of the first step.
    return scores - jnp.log(-jnp.log(jnp.maximum(uniform, 2.0**-25)))


def _keep(scores: Value, least: Value, last: Value) -> Value:
    return Map(kept, "b v, b, b, @v -> b v", name="keep")(scores, least, last)


def _largest(scores: Value) -> Value:
    return fold(aggregators.ArgMax(), "b v, @v -> b", name="largest")(scores)["index"]
