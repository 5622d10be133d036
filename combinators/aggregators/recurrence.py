"""The aggregator of affine recurrences: the last state of a linear state-space model."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.moments import real
from combinators.arguments import read_flag
from combinators.errors import GraphError, message
from combinators.frozen import dataclass


def Recurrence(*, dense: bool = False) -> Aggregator:
    """Run `h -> a h + b` over all elements in their order, from `h = 0`.

    It takes two inputs, `a` and `b`: `fold(Recurrence(), "t h, t h -> h")`. Running, it is a linear state-space model:
    `tp.scan(Recurrence(), "t h, t h -> t h", over="t")`.

    Args:
      dense: whether `a` is a matrix `(d, d)` and `b` a vector `(d,)`, `"t [i] [j], t [i] -> "`; else both have the
        shape of a cell and are multiplied entry by entry.

    Returns:
      An aggregator to the last `h`, a float of at least 32 bits; 0 for nothing.

    Raises:
      GraphError: where a matrix and its vector do not fit.

    Source: Blelloch 1990, section 1.4.1.
    """
    dense = read_flag(dense, "dense= of Recurrence")
    lift, reference = (lift_dense, reference_dense) if dense else (lift_diagonal, reference_diagonal)
    monoid = monoids.AffineRecurrenceDense if dense else monoids.AffineRecurrence
    if dense:
        return Aggregator(lift, monoid, last_state, reference=reference, name="Recurrence")
    return Aggregator(lift, monoid, last_state, lift_many=DiagonalMany(), reference=reference, name="Recurrence")


def lift_diagonal(a: Any, b: Any) -> Any:
    """Take one step as it is."""
    a, b = real("Recurrence", a), real("Recurrence", b)
    return jnp.broadcast_to(a, b.shape), b


def lift_dense(a: Any, b: Any) -> Any:
    """Take one step as it is.

    Raises:
      GraphError: where it is no square matrix with a vector of its size.
    """
    a, b = real("Recurrence", a), real("Recurrence", b)
    if b.ndim != 1 or a.shape != (b.shape[0], b.shape[0]):
        raise GraphError(
            message(
                "Recurrence: a step is no square matrix with a vector of its size.",
                "expected  (d, d) and (d,)",
                f"got       {a.shape} and {b.shape}",
                remedy="Give them axes of their own: fold(Recurrence(dense=True), 't [i] [j], t [i] -> ').",
            )
        )
    return a, b


@final
@dataclass(frozen=True)
class DiagonalMany:
    """The composition of all steps by one running product from the end, and one sum."""

    def __call__(self, a: Any, b: Any) -> Any:
        """Return `(product of a, sum of b times all later a)` of arrays `(n, ...)`."""
        a, b = real("Recurrence", a), real("Recurrence", b)
        a = jnp.broadcast_to(jnp.reshape(a, a.shape + (1,) * (b.ndim - a.ndim)), b.shape)
        ones = jnp.ones((1, *b.shape[1:]), a.dtype)
        later = jnp.cumprod(jnp.concatenate([ones, a[::-1]]), axis=0)
        return later[-1], jnp.sum(b * later[:-1][::-1], axis=0)


def last_state(state: Any) -> Any:
    """Present what the steps make of 0."""
    return state[1]


def reference_diagonal(a: Any, b: Any) -> Any:
    """Step by step in NumPy, in float64."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    h = np.zeros(b.shape[1:])
    for decay, step in zip(a, b, strict=True):
        h = decay * h + step
    return h


def reference_dense(a: Any, b: Any) -> Any:
    """Step by step in NumPy, in float64."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    h = np.zeros(b.shape[1:])
    for matrix, step in zip(a, b, strict=True):
        h = matrix @ h + step
    return h
