"""Folding every window of a row of states, by dense kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.leafwise import leafwise
from combinators.merging.monoid import Monoid
from combinators.merging.parts import by_part
from combinators.numerics.groups import keep, stacked_identity


def fold_windows(monoid: Monoid, states: Any, size: int) -> Any:
    """Fold each `size` neighbouring states, in order.

        y[t] = x[t] + ... + x[t + size - 1]

    For any monoid blocks of `size` are scanned from both ends; a window is a suffix of one block and a prefix of the
    next: three merges a window, whatever its size. It is the two-stack queue with all its steps at once. Where there
    is an inverse and every leaf is an integer a window is the difference of two prefixes; floats are not subtracted,
    since what large values outside of the window round to would stay in it.

    Args:
      monoid: merges two states.
      states: pytree of arrays `(n, ...)`, `n` at least `size - 1`.
      size: of a window; at least 1.

    Returns:
      Pytree of arrays `(n - size + 1, ...)`.

    Source: van Herk 1992; Gil, Werman 1993; the two stacks of Tangwongsan, Hirzel, Schneider 2017.
    """
    if monoid.parts:
        return by_part(partial(fold_windows, size=size), monoid.parts, monoid.keys, states)
    leaves = jax.tree.leaves(states)
    count = leaves[0].shape[0] - size + 1
    if size == 1 or count <= 0:
        return jax.tree.map(lambda leaf: leaf[: max(count, 0)], states)
    if monoid.inverse is not None and all(jnp.issubdtype(leaf.dtype, jnp.integer) for leaf in leaves):
        return _differences(monoid, monoid.inverse, states, size, count)
    return _two_scans(monoid, states, size, count)


def _differences(monoid: Monoid, inverse: Any, states: Any, size: int, count: int) -> Any:
    combine = jax.vmap(monoid.merge)
    prefixes = lax.associative_scan(combine, states)
    before = jax.tree.map(
        lambda one, leaf: jnp.concatenate([one, leaf[: count - 1]]), stacked_identity(monoid, states, 1), prefixes
    )
    until = jax.tree.map(lambda leaf: leaf[size - 1 :], prefixes)
    return combine(jax.vmap(leafwise(inverse))(before), until)


def _two_scans(monoid: Monoid, states: Any, size: int, count: int) -> Any:
    length = count + size - 1
    blocks = -(-length // size)
    filler = stacked_identity(monoid, states, blocks * size - length)
    cut = jax.tree.map(
        lambda leaf, more: jnp.concatenate([leaf, more]).reshape(blocks, size, *leaf.shape[1:]), states, filler
    )
    combine = jax.vmap(jax.vmap(monoid.merge))
    prefixes = lax.associative_scan(combine, cut, axis=1)
    flipped = jax.tree.map(lambda leaf: jnp.flip(leaf, 1), cut)
    # Flipped states come last first: the order of the monoid is kept by swapping the arguments back.
    suffixes = lax.associative_scan(lambda a, b: combine(b, a), flipped, axis=1)
    suffixes = jax.tree.map(lambda leaf: jnp.flip(leaf, 1), suffixes)

    def from_start(scanned: Any, start: int) -> Any:
        flat = jax.tree.map(lambda leaf: leaf.reshape(blocks * size, *leaf.shape[2:]), scanned)
        return jax.tree.map(lambda leaf: leaf[start : start + count], flat)

    left, right = from_start(suffixes, 0), from_start(prefixes, size - 1)
    # A window that is a block is its suffix alone; merged with the identity it may be NaN, as inf * 0 is.
    aligned = jnp.arange(count) % size == 0
    one = stacked_identity(monoid, states, 1)
    whole = jax.vmap(monoid.merge)(keep(aligned, one, left), keep(aligned, one, right))
    return keep(aligned, left, whole)
