"""The monoids of affine recurrences `h -> a h + b`: their composition. Not commutative."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.merging.monoid import Monoid


def compose(first: Any, then: Any) -> Any:
    """Compose two diagonal recurrences: `(a1, b1)`, then `(a2, b2)`, is `(a2 a1, a2 b1 + b2)`, elementwise."""
    (decay1, input1), (decay2, input2) = first, then
    return decay2 * decay1, decay2 * input1 + input2


def compose_dense(first: Any, then: Any) -> Any:
    """Compose two dense recurrences: `(A1, b1)`, then `(A2, b2)`, is `(A2 A1, A2 b1 + b2)`."""
    (matrix1, input1), (matrix2, input2) = first, then
    return matrix2 @ matrix1, jnp.einsum("...ij,...j->...i", matrix2, input1) + input2


def dense_identity(cell_type: Any) -> Any:
    """Make the recurrence that changes nothing: the identity matrix and zeros."""
    matrix, vector = cell_type
    return jnp.eye(matrix.shape[-1], dtype=matrix.dtype), jnp.zeros(vector.shape, vector.dtype)


AffineRecurrence: Monoid = Monoid((1, 0), compose, name="AffineRecurrence")
"""State `(a, b)`, the map `h -> a h + b`, elementwise. Scanned, `b` is the state of a diagonal state-space model
that starts at 0. Source: Blelloch 1990, section 1.4.1.
"""

AffineRecurrenceDense: Monoid = Monoid(dense_identity, compose_dense, name="AffineRecurrenceDense")
"""State `(A, b)` with a matrix `A` `(n, n)` and a vector `b` `(n,)`, the map `h -> A h + b`. Source: as
`AffineRecurrence`.
"""
