"""Folds by key, and with a mask: what the aggregators of `by_key`, `by_segment` and `masked` are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.aggregation.inputs import count_inputs, most_inputs
from combinators.arguments import is_whole
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from combinators.monoids.function import function
from combinators.monoids.held import hold, release
from combinators.numerics.groups import Groups, attaining_in_groups, fold_all, fold_groups, keep

Selector = Callable[..., Any] | None


@final
@dataclass(frozen=True)
class Split:
    """Part the inputs of an aggregator: what is aggregated, and what selects.

    Args:
      selector: (cells of one element) -> label or mask; None where it is the last input itself.
    """

    selector: Selector
    of_cells: ClassVar = ("selector",)

    def inputs(self, lift: Callable[..., Any]) -> int | None:
        """How many inputs there are where `lift` takes what is aggregated; None where that is not known."""
        count = count_inputs(lift)
        return None if count is None else count + (self.selector is None)

    def most_inputs(self, lift: Callable[..., Any]) -> int | None:
        """How many inputs there can be; None where that is not known."""
        most = most_inputs(lift)
        return None if most is None else most + (self.selector is None)

    def one(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The inputs and the selection of one element."""
        return (args, self.selector(*args)) if self.selector is not None else self._last(args, 0)

    def many(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The inputs and the selections `(n,)` of all elements."""
        if self.selector is None:
            return self._last(args, 1)
        return args, jax.vmap(self.selector)(*args)

    def _last(self, args: tuple[Any, ...], ndim: int) -> tuple[tuple[Any, ...], Any]:
        *xs, last = args
        if jnp.ndim(last) != ndim or not xs:
            raise GraphError(
                message(
                    "Aggregator: the last input selects elements and does not fit them.",
                    f"expected  {'one number an element, (n,)' if ndim else 'one number'}, behind one input or more",
                    f"got       {len(args)} input{'s' * (len(args) != 1)}, the last of shape {jnp.shape(last)}",
                    remedy="Pass labels or mask as a further input, one entry an element; map over other axes.",
                )
            )
        return tuple(xs), last


@final
@dataclass(frozen=True)
class KeyedLift:
    """Lift one element to a function that is the identity for all keys but its own; `monoid` is a held one."""

    lift: Callable[..., Any]
    monoid: Monoid
    split: Split
    size: int

    @property
    def inputs(self) -> int | None:
        """How many inputs it needs; None where that is not known."""
        return self.split.inputs(self.lift)

    @property
    def most_inputs(self) -> int | None:
        """How many inputs it can take; None where that is not known."""
        return self.split.most_inputs(self.lift)

    def __call__(self, *args: Any) -> Any:
        """Return states, stacked by key."""
        xs, key = self.split.one(args)
        state = hold(self.monoid, jax.tree.map(jnp.asarray, self.lift(*xs)), True)
        spread = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.size, *leaf.shape)), state)
        return keep(
            jnp.arange(self.size) == integer_labels("Aggregator.by_key", key),
            spread,
            function(self.monoid).identity_for(spread),
        )


@final
@dataclass(frozen=True)
class KeyedMany:
    """Lift all elements and fold those of every key, by a dense kernel."""

    lift: Callable[..., Any]
    monoid: Monoid
    split: Split
    size: int
    is_sorted: bool

    def __call__(self, *args: Any) -> Any:
        """Return states, stacked by key."""
        xs, keys = self.split.many(args)
        return fold_groups(
            self.monoid, self._states(xs), Groups(integer_labels("Aggregator.by_key", keys), self.size, self.is_sorted)
        )

    def attained(self, places: Sequence[int], extrema: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """How many elements of every key attain the extrema of its state; see `combinators.leaves.fold.Attaining`."""
        xs, keys = self.split.many(tuple(rows))
        states = jax.tree.leaves(self._states(xs))
        slots = Groups(integer_labels("Aggregator.by_key", keys), self.size).slots
        return [attaining_in_groups(top, states[place], slots) for place, top in zip(places, extrema, strict=True)]

    def _states(self, xs: tuple[Any, ...]) -> Any:
        states = jax.vmap(self.lift)(*xs)
        return hold(self.monoid, states, every(states))


@final
@dataclass(frozen=True)
class KeyedReference:
    """Run a reference on the elements of every key."""

    reference: Callable[..., Any]
    split: Split
    size: int

    def __call__(self, *args: Any) -> Any:
        """Return results, stacked by key."""
        xs, keys = self.split.many(args)
        found = [self.reference(*(np.asarray(x)[np.asarray(keys) == key] for x in xs)) for key in range(self.size)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


@final
@dataclass(frozen=True)
class MaskedLift:
    """Lift one element to its state, or to the identity."""

    lift: Callable[..., Any]
    monoid: Monoid
    split: Split

    @property
    def inputs(self) -> int | None:
        """How many inputs it needs; None where that is not known."""
        return self.split.inputs(self.lift)

    @property
    def most_inputs(self) -> int | None:
        """How many inputs it can take; None where that is not known."""
        return self.split.most_inputs(self.lift)

    def __call__(self, *args: Any) -> Any:
        """Return a state."""
        xs, mask = self.split.one(args)
        # The state of what is left out must not be NaN: its derivative would be, times zero or not.
        xs = tuple(jnp.where(_truth(mask), x, jnp.zeros_like(x)) for x in xs)
        state = hold(self.monoid, jax.tree.map(jnp.asarray, self.lift(*xs)), True)
        return keep(_truth(mask), state, self.monoid.identity_for(state))


@final
@dataclass(frozen=True)
class MaskedMany:
    """Lift the elements that a mask keeps and fold them, by a dense kernel."""

    lift: Callable[..., Any]
    monoid: Monoid
    split: Split

    def __call__(self, *args: Any) -> Any:
        """Return a state."""
        xs, mask = self.split.many(args)
        mask = _truth(mask)
        lifted = jax.vmap(self.lift)(*(_filled(x, mask) for x in map(jnp.asarray, xs)))
        states = hold(self.monoid, lifted, every(lifted))
        return fold_all(self.monoid, keep(mask, states, _identities(self.monoid, states)))


@final
@dataclass(frozen=True)
class PresentHeld:
    """Present what a held monoid holds."""

    present: Callable[[Any], Any]
    monoid: Monoid

    def __call__(self, state: Any) -> Any:
        """Return the result."""
        return self.present(release(self.monoid, state))


@final
@dataclass(frozen=True)
class MaskedReference:
    """Run a reference on the elements that a mask keeps."""

    reference: Callable[..., Any]
    split: Split

    def __call__(self, *args: Any) -> Any:
        """Return the result."""
        xs, mask = self.split.many(args)
        return self.reference(*(np.asarray(x)[np.asarray(mask) != 0] for x in xs))


def check_selector(selector: Any, where: str, what: str, remedy: str) -> None:
    """Refuse an array in the place of a function of elements.

    Raises:
      GraphError: when `selector` is neither a function nor None.
    """
    if selector is not None and not callable(selector):
        raise GraphError(
            message(
                f"{where}: `{what}` is {type(selector).__name__}, and no plan could cut it along with the elements.",
                "expected  a function of one element, or None where it is the last input",
                remedy=f"Pass arrays as a further input: {remedy}.",
            )
        )


def read_keys(where: str, size: Any) -> int:
    """The number of keys.

    Raises:
      GraphError: when it is no positive integer.
    """
    if not is_whole(size) or size < 1:
        raise GraphError(
            message(
                f"{where}: the number of keys is no positive integer.",
                f"got       {size!r}",
                remedy="Pass how many keys there are; elements of other keys are left out.",
            )
        )
    return int(size)


def every(states: Any) -> Any:
    """For each of some stacked states that it is of something."""
    return jnp.ones(jnp.shape(jax.tree.leaves(states)[0])[:1], jnp.bool_)


def _identities(monoid: Monoid, states: Any) -> Any:
    return function(monoid).identity_for(states)


def _filled(x: Any, mask: Any) -> Any:
    """Put a kept element in the place of those left out: what lies there may be NaN, and so would be its slope."""
    if x.shape[0] == 0:
        return x
    first = lax.stop_gradient(jnp.where(jnp.any(mask), x[jnp.argmax(mask)], jnp.zeros_like(x[0])))
    return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - 1)), x, first)


def integer_labels(where: str, labels: Any) -> Any:
    """Give labels as integers of at least 32 bits.

    Args:
      where: what takes them.
      labels: integers or booleans of any shape.

    Raises:
      GraphError: when they are neither.
    """
    labels = jnp.asarray(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer) and labels.dtype != jnp.bool_:
        raise GraphError(
            message(
                f"{where}: the labels are no integers.",
                "expected  integers or booleans",
                f"got       {labels.dtype.name}",
                remedy="Convert labels to integers, or return integers from the labelling function.",
            )
        )
    return labels if labels.dtype.itemsize >= 4 else labels.astype(jnp.int32)


def _truth(mask: Any) -> Any:
    return jnp.asarray(mask) != 0
