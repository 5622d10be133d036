"""A monoid whose states say whether anything was merged into them.

What selects elements (a mask, a key, the first windows) leaves states of nothing between the others. Most monoids may
merge their identity there. In a product of matrices, in a recurrence, and who knows in which monoid of one's own, an
identity beside an infinity makes NaN, as `inf * 0` does. Such a monoid gets a flag: nothing is merged with what is of
nothing. The flag is one byte, and no other monoid pays for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, final

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.merging.chosen import choose, merge_chosen
from combinators.merging.leafwise import Leafwise, leafwise
from combinators.merging.monoid import Monoid, side_by_side
from combinators.merging.parts import by_part
from combinators.monoids.arg_extremum import combine_argmax, combine_argmin
from combinators.monoids.compensated_sum import combine_compensated
from combinators.monoids.decayed import Decay
from combinators.monoids.dual import Swapped
from combinators.monoids.first import combine_first, combine_last
from combinators.monoids.function import EachKey
from combinators.monoids.lexicographic import Preferred
from combinators.monoids.matrix_product import PathProduct
from combinators.monoids.optional import Adjoined
from combinators.monoids.reservoir import merge_reservoirs
from combinators.monoids.runs import Continue
from combinators.monoids.segmented import Restart, Unbroken
from combinators.monoids.top_k import merge_top_k

# State: (any, state): whether it is of any element, and the state of those; the identity where it is not.

_NEUTRAL = (
    combine_argmax,
    combine_argmin,
    combine_compensated,
    combine_first,
    combine_last,
    merge_reservoirs,
    merge_top_k,
)
"""Whose identity changes no state, of infinities or not (`test_identity_keeps_nan_and_makes_none_of_infinities`)."""


def held(monoid: Monoid) -> Monoid:
    """Make the monoid that merges nothing with a state of nothing.

        (h1, a) + (h2, b) = (h1 or h2, a + b if h1 and h2 else a if h1 else b)

    Args:
      monoid: merges the states of something.

    Returns:
      A monoid of the states that `hold` makes: `(any, state)`, of a held one another time, so that what `hold` wraps is
      never in question; `monoid` itself, whose states stay as they are, where its identity changes nothing. Of a
      product each part goes its own way.

    Laws: those of `monoid`.
    """
    if monoid.parts:
        parts = tuple(map(held, monoid.parts))
        return monoid if parts == monoid.parts else side_by_side(parts, monoid.keys)
    if monoid.frame is not None or is_neutral(monoid.combine):
        return monoid
    return Monoid(
        Unbroken(monoid),
        Hold(monoid),
        commutative=monoid.commutative,
        idempotent=monoid.idempotent,
        name=f"held {repr(monoid)[len('Monoid(') : -1]}",
    )


def hold(monoid: Monoid, state: Any, there: Any) -> Any:
    """A state of a held monoid.

    Args:
      monoid: what `held` gave.
      state: of the monoid that it was made of.
      there: whether the state is of anything; a boolean of the outer shape of its leaves.
    """
    if monoid.parts:
        return by_part(partial(hold, there=there), monoid.parts, monoid.keys, state)
    return (jnp.asarray(there), state) if isinstance(monoid.combine, Hold) else state


def release(monoid: Monoid, state: Any) -> Any:
    """The state that a held monoid holds: that of the monoid it was made of."""
    if monoid.parts:
        return by_part(release, monoid.parts, monoid.keys, state)
    return state[1] if isinstance(monoid.combine, Hold) else state


def is_neutral(combine: Any) -> bool:
    """Whether the identity of a monoid with this `combine` is known to change no state, of infinities or not."""
    match combine:
        case Adjoined() | Decay() | PathProduct() | Leafwise():
            return True
        case Swapped(inner) | EachKey(inner):
            return is_neutral(inner)
        case Restart(monoid) | Continue(monoid) | Preferred(_, monoid):
            return held(monoid) is monoid
        case _:
            known = any(combine is one for one in _NEUTRAL)
            return known or isinstance(leafwise(combine), Leafwise)


@final
@dataclass(frozen=True)
class Hold:
    """Merge two states where both are of something; else keep the one that is."""

    monoid: Monoid

    def __call__(self, left: Any, right: Any) -> Any:
        """Return whether either is of anything, and the state."""
        (there1, first), (there2, second) = left, right
        # What is of nothing has no slope, in either order.
        alone = choose(there1, first, choose(there2, second, self.monoid.identity_for(second)))
        return there1 | there2, merge_chosen(self.monoid, there1 & there2, first, second, alone)
