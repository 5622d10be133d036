"""Which experts a token chooses, and the losses that keep the choice even and small."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators import aggregators
from combinators.frozen import dataclass
from combinators.leaves.fold import fold
from combinators.leaves.map import Map
from combinators.recording.value import Value


@dataclass(frozen=True)
class Choose:
    """The most probable experts of a token, and how much of each it takes.

    Attributes:
      count: how many.
      normalized: whether the shares of those that are chosen add up to one.
    """

    count: int
    normalized: bool

    def __call__(self, logits: Any) -> tuple[Any, Any]:
        """Shares and numbers `(..., count)`, the largest first."""
        shares, numbers = lax.top_k(jax.nn.softmax(logits, axis=-1), self.count)
        if self.normalized:
            shares = shares / jnp.sum(shares, axis=-1, keepdims=True)
        return shares, numbers.astype(jnp.int32)


@dataclass(frozen=True)
class Chosen:
    """How often a token chose each expert.

    Attributes:
      experts: how many there are.
    """

    experts: int

    def __call__(self, numbers: Any) -> Any:
        """`(..., experts)`, float32."""
        return jnp.sum(jax.nn.one_hot(numbers, self.experts, dtype=jnp.float32), axis=-2)


def softmax_of_last(logits: Any) -> Any:
    """Probabilities along the last axis."""
    return jax.nn.softmax(logits, axis=-1)


def squared_normalizer(logits: Any) -> Any:
    """`logsumexp(logits)^2` along the last axis."""
    return jnp.square(jax.nn.logsumexp(logits, axis=-1))


def choose(logits: Value, count: int, *, normalized: bool) -> tuple[Value, Value]:
    """Shares and numbers of the experts that each token chooses, `(..., chosen)`."""
    return Map(Choose(count, normalized), "... [x] -> ... [chosen], ... [chosen]", sizes={"chosen": count})(logits)


def load_balance(logits: Value, numbers: Value, experts: int) -> Value:
    """`experts * sum_x f(x) p(x)`: the share of tokens that chose `x`, and its mean probability, over all tokens.

    Source: Fedus et al. 2021, equation 4; where a token chooses several, each counts.
    """
    dims = " ".join(f"d{axis}" for axis in range(logits.ndim - 1))
    mean = fold(aggregators.Mean(), f"{dims} x -> x", name="mean")
    counts = Map(Chosen(experts), "... [k] -> ... [x]", sizes={"x": experts}, name="chosen")(numbers)
    probable = mean(Map(softmax_of_last, "... [x] -> ... [x]", name="probable")(logits))
    product = Map(jnp.multiply, "[x], [x] -> [x]")(mean(counts), probable)
    return Map(jnp.sum, "[x] -> ()", name="sum")(product) * experts


def router_z(logits: Value) -> Value:
    """Mean over all tokens of `logsumexp(logits)^2`.

    Source: Zoph et al. 2022, equation 5.
    """
    squares = Map(squared_normalizer, "... [x] -> ...", name="squared_normalizer")(logits)
    dims = " ".join(f"d{axis}" for axis in range(squares.ndim))
    return fold(aggregators.Mean(), f"{dims} -> ()", name="mean")(squares)
