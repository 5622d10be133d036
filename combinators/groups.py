"""Folding stacked states in groups, by dense kernels: all of them to one state, or to one state a key.

What a monoid declares decides how. A native one is one segmented reduction a leaf. A framed one is two: the frame of
every group, then sums of what the states are in it. The parts of a product go each its own way. For any other monoid
the states are sorted by key and scanned, segment by segment, in logarithmic depth and in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import lax

from combinators.frame import Frame
from combinators.monoid import Monoid, Native
from combinators.monoids.segmented import segmented
from combinators.together import reduce_together


@final
@dataclass(frozen=True)
class Groups:
    """Which group every element belongs to.

    Attributes:
      keys: int32 `(n,)`; an element whose key is not in `[0, size)` belongs to no group.
      size: number of groups.
      is_sorted: whether keys never decrease.
    """

    keys: Any
    size: int
    is_sorted: bool = False

    @property
    def slots(self) -> Any:
        """The keys, those of no group moved past the end, where a scatter drops them."""
        return jnp.where((self.keys >= 0) & (self.keys < self.size), self.keys, self.size)


def fold_groups(monoid: Monoid, states: Any, groups: Groups) -> Any:
    """Fold the states of every group, in their order.

    Args:
      monoid: merges two states.
      states: pytree of arrays `(n, ...)`.
      groups: of the `n` elements.

    Returns:
      States stacked along a leading axis of `groups.size`; the identity for a group without elements.
    """
    if monoid.parts:
        where: Any = monoid.keys if monoid.keys is not None else range(len(monoid.parts))
        folded = [fold_groups(part, states[key], groups) for part, key in zip(monoid.parts, where, strict=True)]
        return tuple(folded) if monoid.keys is None else dict(zip(monoid.keys, folded, strict=True))
    if monoid.native is not None:
        start = stacked_identity(monoid, states, groups.size)
        return jax.tree.map(lambda one, leaf: _scatter(monoid.native, one, leaf, groups), start, states)
    if monoid.frame is not None:
        return _fold_framed(monoid, monoid.frame, states, groups)
    return _fold_ordered(monoid, states, groups)


def fold_all(monoid: Monoid, states: Any) -> Any:
    """Fold all states, in their order, by dense reductions where the monoid allows it.

    Args:
      monoid: merges two states.
      states: pytree of arrays `(n, ...)`.

    Returns:
      One state; the identity where `n` is 0.
    """
    if monoid.parts:
        where: Any = monoid.keys if monoid.keys is not None else range(len(monoid.parts))
        folded = [fold_all(part, states[key]) for part, key in zip(monoid.parts, where, strict=True)]
        return tuple(folded) if monoid.keys is None else dict(zip(monoid.keys, folded, strict=True))
    if monoid.native is not None:
        identity = cell_identity(monoid, states)
        return jax.tree.map(lambda one, leaf: _reduce(monoid.native, one, leaf), identity, states)
    if monoid.frame is not None:
        frame, identity = monoid.frame, cell_identity(monoid, states)
        still = jax.tree.map(lax.stop_gradient, states)
        summary = jax.tree.map(
            lambda one, leaf: _reduce(frame.merge, one, leaf), frame.summary(identity), jax.vmap(frame.summary)(still)
        )
        reference = jax.tree.map(lax.stop_gradient, frame.at(summary))
        addends = jax.vmap(frame.express, in_axes=(0, None))(states, reference)
        none = frame.express(identity, reference)
        return frame.restore(reference, jax.tree.map(lambda one, leaf: one + _reduce("sum", one, leaf), none, addends))
    return monoid.fold_stacked(states)


def cell_identity(monoid: Monoid, states: Any) -> Any:
    """The identity of the cell that stacked states are made of."""
    return monoid.identity_for(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), states))


def stacked_identity(monoid: Monoid, states: Any, size: int) -> Any:
    """The identity, `size` times along a leading axis."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))), cell_identity(monoid, states))


def keep(mask: Any, kept: Any, other: Any) -> Any:
    """Choose leaf by leaf between stacked states, `mask` along their leading axis."""
    return jax.tree.map(
        lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b), kept, other
    )


def _reduce(kind: Native | None, identity: Any, leaf: Any) -> Any:
    match kind:
        case "sum":
            return jnp.sum(leaf, axis=0, dtype=leaf.dtype)
        case "or":
            return jnp.any(leaf, axis=0)
        case "and":
            return jnp.all(leaf, axis=0)
        case "max" | "min" if leaf.shape[0] > 0:
            return reduce_together((kind,), leaf)[0]
        case _:
            return jnp.broadcast_to(identity, leaf.shape[1:])


def _scatter(kind: Native | None, start: Any, leaf: Any, groups: Groups) -> Any:
    if kind in ("or", "and"):
        # Truth is ordered: the greatest of booleans is their disjunction.
        name = "max" if kind == "or" else "min"
        return _scatter(name, start.astype(jnp.int8), leaf.astype(jnp.int8), groups).astype(jnp.bool_)
    at = start.at[groups.slots]
    put = at.add if kind == "sum" else at.max if kind == "max" else at.min
    return put(leaf, mode="drop", indices_are_sorted=groups.is_sorted)


def _fold_framed(monoid: Monoid, frame: Frame, states: Any, groups: Groups) -> Any:
    start = stacked_identity(monoid, states, groups.size)
    # An element of no group is far from any frame: its addend could overflow, and its slope be 0 * inf.
    states = keep(groups.slots < groups.size, states, cell_identity(monoid, states))
    still = jax.tree.map(lax.stop_gradient, states)
    summary = jax.tree.map(
        lambda one, leaf: _scatter(frame.merge, one, leaf, groups),
        jax.vmap(frame.summary)(start),
        jax.vmap(frame.summary)(still),
    )
    reference = jax.tree.map(lax.stop_gradient, jax.vmap(frame.at)(summary))
    mine = jax.tree.map(lambda leaf: jnp.take(leaf, groups.slots, axis=0, mode="clip"), reference)
    addends = jax.vmap(frame.express)(states, mine)
    none = jax.vmap(frame.express)(start, reference)
    sums = jax.tree.map(lambda one, leaf: _scatter("sum", one, leaf, groups), none, addends)
    return jax.vmap(frame.restore)(reference, sums)


def _fold_ordered(monoid: Monoid, states: Any, groups: Groups) -> Any:
    slots, start = groups.slots, stacked_identity(monoid, states, groups.size)
    count = slots.shape[0]
    if count == 0:
        return start
    if not groups.is_sorted:
        order = jnp.argsort(slots, stable=True)
        slots, states = slots[order], jax.tree.map(lambda leaf: leaf[order], states)
    begins = jnp.concatenate([jnp.ones(1, jnp.bool_), slots[1:] != slots[:-1]])
    _, prefixes = lax.associative_scan(jax.vmap(segmented(monoid).merge), (begins, states))
    last = jnp.searchsorted(slots, jnp.arange(groups.size), side="right") - 1
    found = (last >= 0) & (slots[last] == jnp.arange(groups.size))
    return keep(found, jax.tree.map(lambda leaf: leaf[last], prefixes), start)
