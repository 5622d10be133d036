"""Prefixes of stacked states in a program whose length does not depend on how many there are.

`lax.associative_scan` writes out two levels of slices for every halving of the steps; each is compiled by itself where
the call is not jitted. Two loops over rows of steps, as in `combinators.numerics.row_scan`, are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

LENGTH = 32
"""The steps of a row: each takes one turn of a loop, in which all rows advance."""

SHORT = 8
"""Up to so many steps `lax.associative_scan` is the shorter program."""


def stacked_prefixes(merge: Callable[[Any, Any], Any], identity: Any, states: Any) -> Any:
    """What the states up to each one come to, merged in their order.

    Args:
      merge: of two pytrees of stacked states, one by one; associative.
      identity: of one state: merging it changes nothing.
      states: pytree of arrays `(n, ...)`.

    Returns:
      Pytree of arrays `(n, ...)`.
    """
    size = jax.tree.leaves(states)[0].shape[0]
    if size <= SHORT:
        return lax.associative_scan(merge, states)
    length = min(LENGTH, size)
    rows = -(-size // length)

    def spread(one: Any, count: int) -> Any:
        return jnp.broadcast_to(one, (count, *jnp.shape(one)))

    def by_step(one: Any, leaf: Any) -> Any:
        # Identities fill the last row: copies of a state could overflow, and give its gradient NaN.
        full = jnp.concatenate([leaf, spread(one, rows * length - size).astype(leaf.dtype)])
        return jnp.swapaxes(full.reshape(rows, length, *leaf.shape[1:]), 0, 1)

    steps = jax.tree.map(by_step, identity, states)
    first, rest = jax.tree.map(lambda leaf: leaf[0], steps), jax.tree.map(lambda leaf: leaf[1:], steps)
    ends, _ = lax.scan(lambda carry, step: (merge(carry, step), None), first, rest)
    upto = stacked_prefixes(merge, identity, ends)
    before = jax.tree.map(
        lambda one, leaf: jnp.concatenate([spread(one, 1).astype(leaf.dtype), leaf[:-1]]), identity, upto
    )
    _, found = lax.scan(lambda carry, step: (merge(carry, step),) * 2, before, steps)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1).reshape(rows * length, *leaf.shape[2:])[:size], found)
