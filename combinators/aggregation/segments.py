"""Folds of the last segment: what the aggregators of `segmented` and `by_run` are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.aggregation.grouped import Split, every, integer_labels
from combinators.equations.silent import silent
from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid, side_by_side
from combinators.monoids.function import function
from combinators.monoids.held import held, hold, release
from combinators.numerics.groups import fold_all, keep


@final
@dataclass(frozen=True)
class Flags:
    """Segments that begin where a flag is true."""

    split: Split

    def head(self, selected: Any) -> tuple[Any, ...]:
        """The parts of a state in front of the aggregator's own."""
        return (jnp.asarray(selected) != 0,)

    def last(self, selected: Any) -> Any:
        """For all elements whether they lie in the last segment."""
        flags = jnp.asarray(selected) != 0
        count = jnp.cumsum(flags)
        return count == count[-1]

    def heads(self, selected: Any) -> tuple[Any, ...]:
        """The parts in front of a state of all elements."""
        return (jnp.any(jnp.asarray(selected) != 0),)


@final
@dataclass(frozen=True)
class Labels:
    """Segments of equal labels."""

    split: Split

    def head(self, selected: Any) -> tuple[Any, ...]:
        """The parts of a state in front of the aggregator's own."""
        return jnp.ones(jnp.shape(selected), jnp.int8), _labels(selected)

    def last(self, selected: Any) -> Any:
        """For all elements whether they lie in the last run."""
        labels = _labels(selected)
        changes = jnp.concatenate([jnp.zeros(1, jnp.bool_), labels[1:] != labels[:-1]])
        count = jnp.cumsum(changes)
        return count == count[-1]

    def heads(self, selected: Any) -> tuple[Any, ...]:
        """The parts in front of a state of all elements."""
        labels = _labels(selected)
        return jnp.where(jnp.all(labels == labels[-1]), 1, 2).astype(jnp.int8), labels[-1]


@final
@dataclass(frozen=True)
class SegmentLift:
    """Lift one element together with where it belongs."""

    lift: Callable[..., Any]
    kind: Flags | Labels

    @property
    def inputs(self) -> int | None:
        """How many inputs it needs; None where that is not known."""
        return self.kind.split.inputs(self.lift)

    @property
    def most_inputs(self) -> int | None:
        """How many inputs it can take; None where that is not known."""
        return self.kind.split.most_inputs(self.lift)

    def __call__(self, *args: Any) -> Any:
        """Return a state."""
        xs, selected = self.kind.split.one(args)
        return (*self.kind.head(selected), jax.tree.map(jnp.asarray, self.lift(*xs)))


@final
@dataclass(frozen=True)
class SegmentMany:
    """Lift all elements and fold those of the last segment, by a dense kernel."""

    lift: SegmentLift
    monoid: Monoid
    whole: Monoid

    def __call__(self, *args: Any) -> Any:
        """Return a state."""
        _, selected = self.lift.kind.split.many(args)
        states: Any = jax.vmap(self.lift)(*args)
        if jnp.shape(selected)[0] == 0:
            return self.whole.fold_stacked(states)
        inner, monoid = states[-1], held(self.monoid)
        states = hold(monoid, inner, every(inner))
        kept = keep(self.lift.kind.last(selected), states, function(monoid).identity_for(states))
        return (*self.lift.kind.heads(selected), release(monoid, _fold_dropped(monoid, kept)))


@final
@dataclass(frozen=True)
class PresentLast:
    """Present the aggregator's own part of a state."""

    present: Callable[[Any], Any]

    def __call__(self, state: Any) -> Any:
        """Return the result."""
        return self.present(state[-1])


@final
@dataclass(frozen=True)
class LastReference:
    """Run a reference on the last segment."""

    reference: Callable[..., Any]
    kind: Flags | Labels

    def __call__(self, *args: Any) -> Any:
        """Return the result."""
        xs, selected = self.kind.split.many(args)
        selected = np.asarray(selected)
        begins = selected[:0] if not len(selected) else selected
        if isinstance(self.kind, Flags):
            starts = np.flatnonzero(begins)
        else:
            starts = np.flatnonzero(begins[1:] != begins[:-1]) + 1
        first = int(starts[-1]) if len(starts) else 0
        return self.reference(*(np.asarray(x)[first:] for x in xs))


def _fold_dropped(monoid: Monoid, states: Any) -> Any:
    """All states folded in order. Where a later element begins anew this is dropped: nothing comes back of it then."""
    return silent(partial(fold_all, _silenced(monoid), in_order=True))(states)


def _silenced(monoid: Monoid) -> Monoid:
    """The same monoid; where it merges two by two, no merge sends anything back where nothing comes to it."""
    if monoid.parts:
        return side_by_side(tuple(map(_silenced, monoid.parts)), monoid.keys)
    # Others are folded at once.
    return monoid if monoid.native or monoid.frame else Monoid(monoid.identity, silent(monoid.merge))


def _labels(selected: Any) -> Any:
    # Rounded or cut off, labels that differ could become one run.
    return integer_labels("Aggregator.by_run", selected)
