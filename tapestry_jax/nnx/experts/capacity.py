"""Experts with a number of places for each group of tokens: who finds none is dropped."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.kernels.coordinates import Searching
from combinators.leaves.map import Map
from combinators.leaves.reduce import Reduce
from combinators.merging.monoid import Monoid
from combinators.monoids import Sum
from combinators.numerics.locating import locate, place_after
from combinators.recording.value import Value


@dataclass(frozen=True)
class Places:
    """The place of each choice of a group of tokens, `expert * capacity + rank`, or -1.

    First choices of all tokens come before second ones, and tokens in their order.

    Attributes:
      experts: how many there are.
      capacity: places of each.
    """

    experts: int
    capacity: int

    def __call__(self, numbers: Any) -> Any:
        """Shape and dtype of `numbers`, `(..., tokens, chosen)`."""
        choices = math.prod(numbers.shape[-2:])
        in_turn = jnp.reshape(jnp.swapaxes(numbers, -1, -2), (*numbers.shape[:-2], choices))
        taken = jax.nn.one_hot(in_turn, self.experts, dtype=jnp.int32)
        before = jnp.cumsum(taken, axis=-2) - taken
        rank = jnp.sum(before * taken, axis=-1)
        place = jnp.where(rank < self.capacity, in_turn * self.capacity + rank, -1)
        turned = (*numbers.shape[:-2], numbers.shape[-1], numbers.shape[-2])
        return jnp.swapaxes(jnp.reshape(place, turned), -1, -2).astype(numbers.dtype)


@dataclass(frozen=True)
class Dispatch:
    """Tokens at the places of some experts; zeros where nobody is.

    Attributes:
      experts: how many there are in all.
      capacity: places of each.
    """

    experts: int
    capacity: int

    def __call__(self, tokens: Any, places: Any, at: Any) -> Any:
        """`(..., experts of the block, capacity, features)`."""
        lead, (count, width) = tokens.shape[:-2], tokens.shape[-2:]
        groups = math.prod(lead)
        if not count:
            return jnp.zeros((*lead, at.shape[0], self.capacity, width), tokens.dtype)
        flat = jnp.reshape(tokens, (groups, count, width)), jnp.reshape(places, (groups, count, places.shape[-1]))
        found = jax.vmap(partial(self._of_group, at=at))(*flat)
        return jnp.reshape(found, (*lead, at.shape[0], self.capacity, width))

    def _of_group(self, tokens: Any, places: Any, *, at: Any) -> Any:
        count, total = tokens.shape[0], self.experts * self.capacity
        # Dropped choices write behind the last place, and nobody there reads behind the last token.
        behind = jnp.where(places < 0, total, places)
        who = jnp.full((total + 1,), count, jnp.int32)
        who = who.at[behind.ravel()].set(jnp.repeat(jnp.arange(count, dtype=jnp.int32), places.shape[-1]))
        who = jnp.reshape(who[:total], (self.experts, self.capacity))[at]
        return jnp.take(tokens, who, axis=0, mode="fill", fill_value=0)


@dataclass(frozen=True)
class Collect(Searching):
    """What each token gets from the experts of a block, by shares; the sum over blocks is what it gets.

    Attributes:
      capacity: places of each expert.
    """

    capacity: int
    merged_by: ClassVar[tuple[Monoid, ...]] = (Sum,)

    def __call__(self, given: Any, places: Any, shares: Any, at: Any) -> Any:
        """`(..., tokens, features)`, in the dtype of `given`."""
        return _collect(self.capacity, given, places, shares, at, locate)

    @property
    def consecutive(self) -> Callable[..., Any]:
        """The same without a search."""
        return partial(_collect, self.capacity, find=place_after)


def places_of(numbers: Value, experts: int, capacity: int) -> Value:
    """The places of choices `(..., tokens, chosen)`, in groups that the leading dimensions number."""
    return Map(Places(experts, capacity), "... [s] [k] -> ... [s] [k]", name="places")(numbers)


def dispatch(tokens: Value, places: Value, experts: int, capacity: int) -> Value:
    """Tokens `(..., tokens, features)` at places: `(..., choice, slot, features)`."""
    sizes = {"choice": experts, "slot": capacity}
    text = "... [s] e, ... [s] [k], @choice -> ... choice [slot] e"
    return Map(Dispatch(experts, capacity), text, sizes=sizes, name="dispatch")(tokens, places)


def collect(given: Value, places: Value, shares: Value, capacity: int) -> Value:
    """Back to tokens, whose order and number are those of the places."""
    text = "... choice [slot] e, ... [s] [k], ... [s] [k], @choice -> ... [s] e"
    return Reduce(Collect(capacity), text, Sum, name="collect")(given, places, shares)


def _collect(capacity: int, given: Any, places: Any, shares: Any, at: Any, find: Any) -> Any:
    place, is_here = find(jnp.maximum(places, 0) // capacity, at)
    is_here = is_here & (places >= 0)
    row = jnp.where(is_here, place * capacity + jnp.maximum(places, 0) % capacity, at.shape[0] * capacity)
    lead, width = given.shape[:-3], given.shape[-1]
    rows = jnp.reshape(given, (math.prod(lead), at.shape[0] * capacity, width))
    at_row = jnp.reshape(row, (math.prod(lead), *row.shape[-2:]))
    found = jax.vmap(lambda table, row: jnp.take(table, row, axis=0, mode="fill", fill_value=0))(rows, at_row)
    weight = jnp.reshape(shares * is_here, (*at_row.shape, 1))
    return jnp.reshape(jnp.sum(found * weight, axis=-2), (*lead, row.shape[-2], width)).astype(given.dtype)
