"""The aggregators of the first and of the last element."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.weights import over
from combinators.frozen import dataclass


def First() -> Aggregator:
    """Find the first element.

    Returns:
      An aggregator of one input, and optionally of booleans that say which elements are valid, to a dictionary of
      `value` and `valid`. Of nothing the value is 0 and `valid` False. All of the gradient goes to the chosen element.
    """
    return _make(True)


def Last() -> Aggregator:
    """Find the last element.

    Returns:
      An aggregator as of `First`.
    """
    return _make(False)


def _make(first: bool) -> Aggregator:
    return Aggregator(
        lift_valid,
        monoids.First if first else monoids.Last,
        present_valid,
        lift_many=TakeEnd(first),
        reference=ReferenceEnd(first),
        name="First" if first else "Last",
    )


def lift_valid(x: Any, valid: Any = True) -> Any:
    """Pair one element with its flag; what is not valid has the value 0."""
    x, valid = jnp.asarray(x), jnp.asarray(valid, bool)
    return jnp.where(over(valid, x), x, 0).astype(x.dtype), valid


@final
@dataclass(frozen=True)
class TakeEnd:
    """Take the first or the last valid element along the leading axis.

    Attributes:
      first: whether it is the first.
    """

    first: bool

    def __call__(self, xs: Any, valid: Any = None) -> Any:
        """Return `(value, valid)` of `n` elements and their flags `(n,)`."""
        xs, size = jnp.asarray(xs), xs.shape[0]
        if size == 0:
            return jnp.zeros(xs.shape[1:], xs.dtype), jnp.zeros(() if valid is None else valid.shape[1:], bool)
        if valid is None:
            return lift_valid(xs[0 if self.first else -1])
        valid = jnp.asarray(valid, bool)
        at = jnp.argmax(valid, axis=0) if self.first else size - 1 - jnp.argmax(valid[::-1], axis=0)
        position = jnp.broadcast_to(over(at, xs[0]), xs.shape[1:])
        return lift_valid(jnp.take_along_axis(xs, position[None], axis=0)[0], jnp.any(valid, axis=0))


def present_valid(state: Any) -> Any:
    """Present value and flag by name."""
    value, valid = state
    return {"value": value, "valid": valid}


@final
@dataclass(frozen=True)
class ReferenceEnd:
    """Take the first or the last valid element in NumPy.

    Attributes:
      first: whether it is the first.
    """

    first: bool

    def __call__(self, xs: Any, valid: Any = None) -> Any:
        """Return the dictionary that `present_valid` does."""
        kept = xs if valid is None else xs[np.asarray(valid, bool)]
        if not len(kept):
            return {"value": np.zeros(xs.shape[1:], xs.dtype), "valid": np.asarray(False)}
        return {"value": kept[0 if self.first else -1], "valid": np.asarray(True)}
