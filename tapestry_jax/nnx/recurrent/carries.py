"""States of recurrent layers that come from outside, or that are picked behind the last step of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import SignatureError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.naming import unify
from combinators.leaves.map import Map
from combinators.recording.value import Value


@dataclass(frozen=True)
class Flip:
    """The first `length` steps of every row in the opposite order; what stands behind them stays behind them."""

    def __call__(self, x: Any, lengths: Any) -> Any:
        """`(..., steps, features)` and lengths `(...)`."""
        steps = x.shape[-2]
        at = (jnp.arange(steps - 1, -1, -1) + lengths[..., None]) % steps
        return jnp.take_along_axis(x, at[..., None], axis=-2)


@dataclass(frozen=True)
class Kept:
    """The new state as long as steps are left, then the one that was there."""

    def __call__(self, old: Any, new: Any, left: Any) -> Any:
        """`left` has the leading axes of both."""
        return jnp.where(jnp.expand_dims(left > 0, tuple(range(left.ndim, old.ndim))), new, old)


def flipped(x: Value, lengths: Value | None) -> Value:
    """Steps `(..., seq, features)` from the end of every row."""
    if lengths is None:
        return x[..., ::-1, :]
    return Map(Flip(), "... [s] e, ... -> ... [s] e", name="flip")(x, lengths)


def kept(old: Any, new: Any, left: Value) -> Any:
    """The states of rows that have steps left are new ones; pytrees of one structure."""
    rows = " ".join(f"d{axis}" for axis in range(left.ndim))

    def leaf(old: Value, new: Value) -> Value:
        own = f"{rows} {' '.join(f'c{axis}' for axis in range(old.ndim - left.ndim))}"
        return Map(Kept(), f"{own}, {own}, {rows} -> {own}", name="kept")(old, new, left)

    return jax.tree.map(leaf, old, new)


def read_carry(given: Any, begin: Any, owner: str) -> Any:
    """A first state from outside, called as that of the cell is.

    Args:
      given: a pytree of values.
      begin: the first state that the cell makes.
      owner: what errors call the layer.

    Raises:
      SignatureError: when it is another one than the cell's.
    """
    ours, theirs = (jax.tree.leaves(tree) for tree in (begin, given))
    alike = jax.tree.structure(begin) == jax.tree.structure(given)
    if not alike or any(not _fits(a, b) for a, b in zip(ours, theirs, strict=True)):
        details = (f"expected {begin}", f"got {given}")
        remedy = "Pass the state of its cell: what an earlier call returned, or zeros of these types."
        raise SignatureError(message(f"{owner}: the first state does not fit", *details, remedy=remedy))
    for own, other in zip(ours, theirs, strict=True):
        for mine, axis in zip(own.axes, other.axes, strict=True):
            unify(axis, mine)
    return given


def read_lengths(given: Any, x: Value, owner: str) -> Value:
    """How many steps of every row count.

    Raises:
      SignatureError: when these are no integers, or not one for each row.
    """
    fits = isinstance(given, Value) and jnp.issubdtype(given.dtype, jnp.integer) and given.shape == x.shape[:-2]
    if not fits:
        details = (f"expected integers {x.shape[:-2]}, one for each row of {x!r}", f"got {spelt(given, 120)}")
        raise SignatureError(message(f"{owner}: the lengths do not fit", *details, remedy="Pass one for each row."))
    return given


def check_count(others: Sequence[Any], has_state: bool, has_lengths: bool, owner: str) -> None:
    """Refuse another number of operands behind the steps than a layer was made for.

    Raises:
      SignatureError: when there are more, or fewer.
    """
    wanted = ["a first state"] * has_state + ["lengths"] * has_lengths
    if len(others) != len(wanted):
        details = (
            f"expected the steps{''.join(f', {each}' for each in wanted)}",
            f"got {len(others)} behind the steps",
        )
        remedy = f"Say what comes where it is made: {owner}(..., initial_carry=True, seq_lengths=True)."
        raise SignatureError(message(f"{owner} takes {1 + len(wanted)} operands", *details, remedy=remedy))


def _fits(own: Value, given: Any) -> bool:
    if not isinstance(given, Value) or given.shape != own.shape or given.dtype != own.dtype:
        return False
    return all(b in (None, a) or a is None for a, b in zip(own.names, given.names, strict=True))
