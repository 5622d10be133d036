"""Folding stacked states in groups, by dense kernels: all of them to one state, or to one state a key.

What a monoid declares decides how. A native one is one segmented reduction a leaf. A framed one is two: the frame of
every group, then sums of what the states are in it. The parts of a product go each its own way. For any other monoid
the states are sorted by key and folded, segment by segment, in logarithmic depth and in their order.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any, cast, final

import jax
import jax.numpy as jnp
from jax import lax

from combinators.errors import KernelError
from combinators.frozen import dataclass
from combinators.kernels.fingerprint import fingerprint
from combinators.kernels.settled import changeable
from combinators.merging.extrema import Extremum, attains, is_smooth
from combinators.merging.frame import Frame
from combinators.merging.leafwise import Native
from combinators.merging.monoid import Monoid
from combinators.merging.parts import by_part
from combinators.merging.stacked_runs import stacked_runs
from combinators.merging.together import first_along, reduce_together


@final
@dataclass(frozen=True)
class Groups:
    """Which group every element belongs to.

    Attributes:
      keys: integers `(n,)`; an element whose key is not in `[0, size)` belongs to no group.
      size: number of groups.
      is_sorted: whether keys are said never to decrease; what is said is looked at before it is relied on.
    """

    keys: Any
    size: int
    is_sorted: bool = False

    @property
    def slots(self) -> Any:
        """The keys as int32, those of no group moved past the end, where a scatter drops them. In no order."""
        return jnp.where(self.places < 0, self.size, self.places)

    @property
    def places(self) -> Any:
        """The keys as int32, those of no group moved to just before and just behind: ascending where the keys are."""
        # Compared as they come: the low bits of a wider key may be those of a group.
        behind = jnp.where(self.keys >= self.size, self.size, self.keys)
        return jnp.where(self.keys < 0, -1, behind).astype(jnp.int32)


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
        return by_part(partial(fold_groups, groups=groups), monoid.parts, monoid.keys, states)
    if monoid.native is not None:
        start = stacked_identity(monoid, states, groups.size)
        return jax.tree.map(lambda one, leaf: _scatter(monoid.native, one, leaf, groups), start, states)
    if monoid.frame is not None:
        return _fold_framed(monoid, monoid.frame, states, groups)
    return _fold_ordered(monoid, states, groups)


def fold_all(monoid: Monoid, states: Any, in_order: bool = False) -> Any:
    """Fold all states, in their order, by dense reductions where the monoid allows it.

    Args:
      monoid: merges two states.
      states: pytree of arrays `(n, ...)`.
      in_order: whether what comes of it is merged in order, so that the first of several that attain an extremum has
        its gradient; otherwise they share it.

    Returns:
      One state; the identity where `n` is 0.
    """
    if monoid.parts:
        return by_part(partial(fold_all, in_order=in_order), monoid.parts, monoid.keys, states)
    if monoid.native is not None:
        identity = cell_identity(monoid, states)
        reduce = _first if in_order else _reduce
        return jax.tree.map(partial(reduce, monoid.native), identity, states)
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


def _first(kind: Native | None, identity: Any, leaf: Any) -> Any:
    if kind in ("max", "min") and leaf.shape[0] and is_smooth(leaf):
        return first_along(kind, leaf)
    return _reduce(kind, identity, leaf)


def _scatter(kind: Native | None, start: Any, leaf: Any, groups: Groups) -> Any:
    if kind in ("or", "and"):
        # Truth is ordered: the greatest of booleans is their disjunction.
        name = "max" if kind == "or" else "min"
        return _scatter(name, start.astype(jnp.int8), leaf.astype(jnp.int8), groups).astype(jnp.bool_)
    # No order is promised: slots are moved, and XLA may do anything with a promise that does not hold.
    if kind == "sum":
        return start.at[groups.slots].add(leaf, mode="drop")
    return _extremes(cast("Extremum", kind), start, leaf, groups.slots)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _extremes(kind: Extremum, start: Any, leaf: Any, slots: Any) -> Any:
    """Extrema by slot; the gradient is shared by all that attain them."""
    at = start.at[slots]
    return at.max(leaf, mode="drop") if kind == "max" else at.min(leaf, mode="drop")


@_extremes.defjvp
def _(kind: Extremum, primals: Any, tangents: Any) -> Any:
    start, leaf, slots = primals
    found = _extremes(kind, start, leaf, slots)
    if not is_smooth(leaf):
        return found, tangents[0]
    counts = attaining_in_groups(found, leaf, slots)
    share = jnp.where(attains(leaf, _of_slots(found, slots)), tangents[1], 0)
    return found, jnp.zeros_like(found).at[slots].add(share, mode="drop") / jnp.maximum(counts, 1).astype(leaf.dtype)


def attaining_in_groups(extrema: Any, leaf: Any, slots: Any) -> Any:
    """How many elements of every group attain its extremum, int32."""
    is_there = attains(leaf, _of_slots(extrema, slots)).astype(jnp.int32)
    return jnp.zeros(extrema.shape, jnp.int32).at[slots].add(is_there, mode="drop")


def _of_slots(grouped: Any, slots: Any) -> Any:
    return jnp.take(grouped, slots, axis=0, mode="clip")


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
    start, places = stacked_identity(monoid, states, groups.size), groups.places
    if places.shape[0] == 0:
        return start
    order = _order(places, groups.is_sorted)
    places, states = places[order], jax.tree.map(lambda leaf: leaf[order], states)
    try:
        known = _Known(monoid, fingerprint(monoid), changeable(monoid))
    except KernelError:  # without a structure that tells it from others it is traced every time
        return _fold_sorted(monoid, start, places, states)
    return _fold_known(known, start, places, states)


@dataclass(frozen=True)
class _Known:
    """A monoid, equal to those that compute the same: Python takes `x * 1` and `x * 1.0` for equal."""

    monoid: Monoid = field(compare=False)
    text: str
    read: tuple[int, ...]


# Jitted, since a call that is not would compile every step by itself.
@partial(jax.jit, static_argnums=0)
def _fold_known(known: _Known, start: Any, places: Any, states: Any) -> Any:
    return _fold_sorted(known.monoid, start, places, states)


def _fold_sorted(monoid: Monoid, start: Any, places: Any, states: Any) -> Any:
    """Fold states that are sorted by place; groups without elements are as in `start`."""
    size = jax.tree.leaves(start)[0].shape[0]
    # What belongs to no group is not folded either: of an infinity that is dropped even a slope of 0 would be NaN.
    inside = (places[1:] >= 0) & (places[1:] < size)
    joins = jnp.concatenate([jnp.zeros(1, jnp.bool_), (places[1:] == places[:-1]) & inside])
    folds = stacked_runs(monoid, joins, states)
    last = jnp.searchsorted(places, jnp.arange(size), side="right") - 1
    found = (last >= 0) & (places[last] == jnp.arange(size))
    return keep(found, jax.tree.map(lambda leaf: leaf[last], folds), start)


def _order(places: Any, is_sorted: bool) -> Any:
    """Positions of elements by place; equal places keep their order. What is said to be sorted is looked at first."""

    def sort(places: Any) -> Any:
        return jnp.argsort(places, stable=True).astype(jnp.int32)

    def leave(places: Any) -> Any:
        # In a mesh both branches have to vary as the places do.
        return jnp.arange(places.shape[0], dtype=jnp.int32) + 0 * places

    if not is_sorted:
        return sort(places)
    return lax.cond(jnp.all(places[1:] >= places[:-1]), leave, sort, places)
