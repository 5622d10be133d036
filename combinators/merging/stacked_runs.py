"""Folds of the runs of stacked states in a program whose length does not depend on how many states there are.

A scan whose prefixes are dropped, but for the last one of every run, also merges what nobody reads. That has a slope
of 0, and beside an infinity 0 would be NaN. Here two states are merged only if the fold of their run is made of them.

`lax.associative_scan` writes out two levels of slices for every halving of the steps; each is compiled by itself where
the call is not jitted. Two loops over rows of steps, as in `combinators.numerics.row_scan`, are compiled once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.equations.scanned import scan
from combinators.merging.chosen import merge_chosen
from combinators.merging.monoid import Monoid

LENGTH = 32
"""The steps of a row: each takes one turn of a loop, in which all rows advance."""


def stacked_runs(monoid: Monoid, joins: Any, states: Any) -> Any:
    """What every run of states comes to, merged in its order.

    Args:
      monoid: merges two states.
      joins: booleans `(n,)`; whether a state goes on with the run of the one before it. That of the first is not read.
      states: pytree of arrays `(n, ...)`.

    Returns:
      Pytree of arrays `(n, ...)`: the fold of its run where a run ends; elsewhere that of some states of the run.
    """
    size = joins.shape[0]
    if size <= 1:
        return states
    length = min(LENGTH, size)
    rows = -(-size // length)

    def in_rows(leaf: Any) -> Any:
        # The last row is filled with copies, which join nothing.
        full = jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (rows * length - size, *leaf.shape[1:]))])
        return full.reshape(rows, length, *leaf.shape[1:])

    joins = in_rows(joins.at[0].set(False))
    steps = jax.tree.map(lambda leaf: jnp.swapaxes(in_rows(leaf), 0, 1), states)
    first, rest = jax.tree.map(lambda leaf: leaf[0], steps), jax.tree.map(lambda leaf: leaf[1:], steps)
    before, leaves = first, jnp.zeros((rows, length), jnp.bool_)
    if rows > 1:
        goes_on = jnp.concatenate([joins[1:, 0], jnp.zeros(1, jnp.bool_)])
        # A step whose run leaves the row is merged into the end of the row, and any other into the end of its run.
        behind = jnp.concatenate([joins[:, 1:], goes_on[:, None]], axis=1).astype(jnp.int8)
        leaves = lax.cummin(behind, axis=1, reverse=True).astype(jnp.bool_)
        ends, _ = _walk(monoid, (joins & leaves)[:, 1:], first, rest)
        upto = stacked_runs(monoid, joins[:, 0] & leaves[:, 0], ends)
        before = jax.tree.map(lambda leaf: jnp.concatenate([leaf[:1], leaf[:-1]]), upto)
    within = joins & ~leaves
    begun = jax.vmap(partial(merge_chosen, monoid))(within[:, 0], before, first, first)
    _, found = _walk(monoid, within[:, 1:], begun, rest)
    found = jax.tree.map(lambda one, leaf: jnp.concatenate([one[None], leaf]), begun, found)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1).reshape(rows * length, *leaf.shape[2:])[:size], found)


def _walk(monoid: Monoid, joins: Any, first: Any, rest: Any) -> Any:
    """Go through all rows at once; a step that joins is merged behind what came before it, any other begins anew."""

    def turn(carry: Any, step: Any) -> Any:
        joined, state = step
        merged = jax.vmap(partial(merge_chosen, monoid))(joined, carry, state, state)
        return merged, merged

    return scan(turn, first, (joins.T, rest))
