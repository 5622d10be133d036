"""Merging two states where both count, and nothing where one does not.

By the law `e + a ~ a`, but beside an infinity `e + a` may be NaN, as `inf * 0` is in a recurrence and in a product of
matrices: where a state does not count, what counts stays as it is, and no identity is merged with it. Identities are
merged in the place of both, since a choice sends zeros back to what it drops, and `0 * inf` is NaN. What is dropped
after it was merged gets such zeros too: nothing comes back of it from merges that say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.equations.silent import silent
from combinators.merging.monoid import Monoid


def merge_chosen(monoid: Monoid, both: Any, left: Any, right: Any, otherwise: Any, *, dropped: bool = False) -> Any:
    """Merge two states where both count.

    Args:
      monoid: merges two states.
      both: whether both count; a boolean of the outer shape of the leaves.
      left: the earlier state.
      right: the later state.
      otherwise: the state where not both count.
      dropped: whether what is merged may be dropped later; then nothing comes back of it.

    Returns:
      A state.
    """
    unit = monoid.identity_for(left)
    safe = choose(both, left, unit), choose(both, right, unit)
    # A sum and an extremum have slopes of zero and one.
    merge = silent(monoid.merge, jnp.ndim(both)) if dropped and not monoid.native else monoid.merge
    return choose(both, merge(*safe), otherwise)


def choose(flag: Any, kept: Any, other: Any) -> Any:
    """Choose leaf by leaf between two states by a boolean of the outer shape of the leaves."""

    def leaf(a: Any, b: Any) -> Any:
        return jnp.where(jnp.reshape(flag, jnp.shape(flag) + (1,) * (jnp.ndim(a) - jnp.ndim(flag))), a, b)

    return jax.tree.map(leaf, kept, other)


def read_where(read: Any, leaves: Sequence[Any]) -> list[Any]:
    """The same leaves; where nobody reads what is made of them no derivative comes back.

    Its cotangent is 0 there, and 0 times an infinity that something was merged with is NaN. A choice between a leaf and
    itself costs nothing forwards.

    Args:
      read: whether somebody reads it: a boolean, or one for each leaf, that broadcasts to it.
      leaves: of a state.
    """
    if read is True:
        return list(leaves)
    each = read if isinstance(read, list) else [read] * len(leaves)
    return [
        jnp.where(one, leaf, lax.stop_gradient(leaf)) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf
        for one, leaf in zip(each, leaves, strict=True)
    ]
