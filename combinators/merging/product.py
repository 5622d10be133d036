"""Products of monoids: several states that combine side by side."""

from __future__ import annotations

from typing import Any, cast

from combinators.errors import GraphError, message
from combinators.merging.monoid import Monoid, side_by_side


def product(*monoids: Monoid) -> Monoid:
    """Pair monoids: the state is a tuple with one state each.

    The product declares what all its parts declare. It has a frame where all parts have one of the same merge; anything
    else a lowering handles part by part, through `parts`.

    Args:
      monoids: one monoid or more.

    Returns:
      The product; its `parts` are the monoids.

    Raises:
      GraphError: when there is no monoid, or something is none.

    Laws: pairing: folding pairs gives the pair of the folds.
    """
    return _product(monoids, None)


def struct(**monoids: Monoid) -> Monoid:
    """Pair monoids by name: the state is a dictionary with one state each.

    Args:
      monoids: one monoid or more.

    Returns:
      The product; its `parts` are the monoids and its `keys` their names.

    Raises:
      GraphError: when there is no monoid, or something is none.
    """
    # JAX flattens dictionaries by sorted key; with the parts in the same order, leaves and parts correspond.
    keys = tuple(sorted(monoids))
    return _product(tuple(monoids[key] for key in keys), keys)


def _product(parts: tuple[Monoid, ...], keys: tuple[str, ...] | None) -> Monoid:
    bad = [f"part {index} is {part!r}" for index, part in enumerate(parts) if not isinstance(cast("Any", part), Monoid)]
    if bad or not parts:
        details = bad or ["expected one monoid or more, got none"]
        raise GraphError(message("product: cannot be built.", *details, remedy="Pass monoids, such as `monoids.Sum`."))
    return side_by_side(parts, keys)
