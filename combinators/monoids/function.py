"""Function-valued monoids: one state for every key, merged key by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.frame import Frame
from combinators.merging.leafwise import leafwise
from combinators.merging.monoid import Monoid, side_by_side
from combinators.merging.parts import Wrapping


def function(monoid: Monoid) -> Monoid:
    """Make the monoid of functions from keys to states, merged point by point.

        (f + g)(key) = f(key) + g(key)

    A function is a state whose leaves have one more axis in front, the keys. It declares what `monoid` declares: native
    collectives, frames, inverses and the parts of products stay.

    Args:
      monoid: merges the states of one key.

    Returns:
      A monoid of states with a leading axis of any size.

    Raises:
      GraphError: when a leaf has no leading axis.

    Laws: those of `monoid`, for every key.
    Source: functions into a monoid are one, pointwise (algebra).
    """
    if monoid.parts:
        return side_by_side(tuple(map(function, monoid.parts)), monoid.keys)
    return Monoid(
        EachIdentity(monoid),
        monoid.combine if monoid.native is not None else EachKey(leafwise(monoid.combine)),
        commutative=monoid.commutative,
        idempotent=monoid.idempotent,
        inverse=None if monoid.inverse is None else EachKey(leafwise(monoid.inverse)),
        frame=None if monoid.frame is None else _frame(monoid.frame),
        name=f"function to {repr(monoid)[len('Monoid(') : -1]}",
    )


@final
@dataclass(frozen=True)
class EachIdentity:
    """The identity for every key."""

    monoid: Monoid

    def __call__(self, cell_type: Any) -> Any:
        """Return identities, stacked along the leading axis of the leaves."""
        bad = [leaf for leaf in jax.tree.leaves(cell_type) if not leaf.shape]
        if bad:
            raise GraphError(
                message(
                    f"monoids.function({self.monoid!r}): a leaf of the state has no axis of keys.",
                    "expected  one axis in front of each leaf",
                    f"got       {bad[0].dtype.name}[]",
                    remedy="Stack the states of all keys along a leading axis.",
                )
            )
        inner = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), cell_type)
        return jax.tree.map(
            lambda one, leaf: jnp.broadcast_to(one, leaf.shape), self.monoid.identity_for(inner), cell_type
        )


@final
@dataclass(frozen=True)
class EachKey(Wrapping):
    """Apply a function for every key."""

    function: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        """Return the results, stacked along a leading axis."""
        return jax.vmap(self.function)(*args)

    def each(self, change: Callable[..., Any]) -> EachKey:
        """The same of a changed function."""
        return EachKey(change(self.function))


def _frame(frame: Frame) -> Frame:
    return Frame(EachKey(frame.summary), frame.merge, EachKey(frame.at), EachKey(frame.express), EachKey(frame.restore))
