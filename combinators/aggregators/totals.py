"""Totals of integers that do not overflow, as plain sums.

A sum of integers wraps around where it leaves its 32 bits. Beside it stands a sum of the same numbers as floats, which
is about right: the two together say how often the first one went round. Both are added, so that one native collective,
one segmented reduction or one cumulative sum still does all of the merging.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.numerics.reductions import Reductions, wider


@final
@dataclass(frozen=True)
class WithFloats:
    """The entries as integers of a dtype, and as floats.

    Attributes:
      kind: of what is added and may wrap around.
      rough: of what is added beside it.
    """

    kind: Any
    rough: Any

    def __call__(self, xs: Any) -> tuple[Any, Any]:
        """Return both arrays."""
        return wider(xs, self.kind), xs.astype(self.rough)


def integer_total(xs: Any) -> Reductions:
    """The total of integers `(n, ...)`: as integers, which may have wrapped around, and about, as floats.

    Args:
      xs: integers of any size.
    """
    kind = jax.eval_shape(lambda xs: jnp.sum(xs, axis=0), xs).dtype
    return Reductions(("sum", "sum"), WithFloats(kind, _rough(kind)), _both)


def total(xs: Any) -> Any:
    """Total elements along the leading axis: integers as `integer_total`, all else as `jnp.sum`."""
    xs = jnp.asarray(xs)
    return integer_total(xs).run(xs) if jnp.issubdtype(xs.dtype, jnp.integer) else jnp.sum(xs, axis=0)


def total_of_products(weights: Any, xs: Any) -> Any:
    """Total `weights * xs` along the leading axis; where both are integers as `integer_total`.

    Args:
      weights: integers or floats that broadcast to the elements.
      xs: `(n, ...)`.
    """
    if any(jnp.issubdtype(x.dtype, jnp.floating) for x in (weights, xs)):
        return jnp.sum(weights * xs, axis=0)
    # A product wraps around as a sum does.
    exact = jnp.sum(weights * xs, axis=0)
    rough = _rough(exact.dtype)
    return exact, jnp.sum(weights.astype(rough) * xs.astype(rough), axis=0)


def settled(state: Any) -> Any:
    """Give a total as one number.

        total = T + 2**bits round((F - T) / 2**bits)

    Args:
      state: the integer sum `T` and the float sum `F`; or one array, which is returned as it is.

    Returns:
      A float. It is the exact total, rounded, as long as the float sum is off by less than half of `2**bits`; beyond
      that its relative error is that of the float sum.
    """
    if not isinstance(state, tuple):
        return state
    exact, rough = state
    known, turn = exact.astype(rough.dtype), 2.0 ** (8 * exact.dtype.itemsize)
    return known + turn * jnp.round((rough - known) / turn)


def _rough(kind: Any) -> Any:
    return jnp.float64 if kind.itemsize == 8 else jnp.float32


def _both(totals: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(totals)
