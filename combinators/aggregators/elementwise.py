"""Aggregators whose state is their result: sums, products, extrema and logic."""

from __future__ import annotations

import typing

import jax
import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.frozen import dataclass
from combinators.merging.together import Kind
from combinators.numerics.reductions import Cast, Reductions


def present_state(state: typing.Any) -> typing.Any:
    """Present a state as it is."""
    return state


def Sum() -> Aggregator:
    """Add up all elements.

    Returns:
      An aggregator of one input. Small integers and booleans are added as int32, as `jnp.sum` does; floats keep their
      dtype. Integers wrap around, as those of `jnp.sum` and NumPy do: enable x64, or use `Mean`, whose totals do not.
      The sum of nothing is 0.
    """
    return Aggregator(lift_sum, monoids.Sum, present_state, lift_many=SumMany(), reference=reference_sum, name="Sum")


def Prod() -> Aggregator:
    """Multiply all elements.

    Returns:
      An aggregator of one input, of dtypes as in `Sum`; integers wrap around. The product of nothing is 1.
    """
    return Aggregator(
        lift_prod, monoids.Prod, present_state, lift_many=prod_many, reference=reference_prod, name="Prod"
    )


def Min() -> Aggregator:
    """Find the least element.

    Returns:
      An aggregator of one input. NaN wins; the minimum of nothing is the greatest value of the dtype.
    """
    return Aggregator(
        jnp.asarray, monoids.Min, present_state, lift_many=ExtremeMany("min"), reference=reference_min, name="Min"
    )


def Max() -> Aggregator:
    """Find the greatest element.

    Returns:
      An aggregator of one input. NaN wins; the maximum of nothing is the least value of the dtype.
    """
    return Aggregator(
        jnp.asarray, monoids.Max, present_state, lift_many=ExtremeMany("max"), reference=reference_max, name="Max"
    )


def Any() -> Aggregator:
    """Say whether an element is true (not zero).

    Returns:
      An aggregator of one input to a boolean; False for nothing.
    """
    return Aggregator(is_true, monoids.Any, present_state, lift_many=any_many, reference=reference_any, name="Any")


def All() -> Aggregator:
    """Say whether all elements are true (not zero).

    Returns:
      An aggregator of one input to a boolean; True for nothing.
    """
    return Aggregator(is_true, monoids.All, present_state, lift_many=all_many, reference=reference_all, name="All")


@typing.final
@dataclass(frozen=True)
class SumMany:
    """Add along the leading axis."""

    entrywise: typing.ClassVar[bool] = True

    def __call__(self, xs: typing.Any) -> typing.Any:
        """Return the total, of the dtype that `jnp.sum` gives it."""
        return jnp.sum(xs, axis=0)

    def reductions(self, xs: typing.Any) -> Reductions:
        """The same, short floats in float32."""
        kind = jax.eval_shape(self, xs).dtype
        wide = jnp.promote_types(kind, jnp.float32) if jnp.issubdtype(kind, jnp.floating) else kind
        return Reductions(("sum",), Cast(wide), lambda totals: totals[0].astype(kind))


def lift_sum(x: typing.Any) -> typing.Any:
    """Give one element the dtype of a sum."""
    return jnp.sum(jnp.asarray(x)[None], axis=0)


def reference_sum(xs: typing.Any) -> typing.Any:
    """Add in NumPy, in float64 where the input is a float."""
    return np.sum(xs, axis=0, dtype=_wide(xs))


def prod_many(xs: typing.Any) -> typing.Any:
    """Multiply along the leading axis."""
    return jnp.prod(xs, axis=0)


def lift_prod(x: typing.Any) -> typing.Any:
    """Give one element the dtype of a product."""
    return jnp.prod(jnp.asarray(x)[None], axis=0)


def reference_prod(xs: typing.Any) -> typing.Any:
    """Multiply in NumPy, in float64 where the input is a float."""
    return np.prod(xs, axis=0, dtype=_wide(xs))


@typing.final
@dataclass(frozen=True)
class ExtremeMany:
    """Find the least or the greatest along the leading axis.

    Attributes:
      kind: "min" or "max".
    """

    kind: Kind

    entrywise: typing.ClassVar[bool] = True

    def __call__(self, xs: typing.Any) -> typing.Any:
        """Return it, of the dtype of the elements."""
        xs = jnp.asarray(xs)
        return self.reductions(xs).run(xs)

    def reductions(self, xs: typing.Any) -> Reductions:
        """The one reduction."""
        return Reductions((self.kind,), Cast(xs.dtype), _only)


def reference_min(xs: typing.Any) -> typing.Any:
    """Find the least in NumPy."""
    return np.min(xs, axis=0, initial=_cell_identity(monoids.Min, xs))


def reference_max(xs: typing.Any) -> typing.Any:
    """Find the greatest in NumPy."""
    return np.max(xs, axis=0, initial=_cell_identity(monoids.Max, xs))


def is_true(x: typing.Any) -> typing.Any:
    """Say whether one element is not zero."""
    return jnp.asarray(x) != 0


def any_many(xs: typing.Any) -> typing.Any:
    """Say along the leading axis whether one is true."""
    return jnp.any(xs, axis=0)


def reference_any(xs: typing.Any) -> typing.Any:
    """Say in NumPy whether one is true."""
    return np.any(xs, axis=0)


def all_many(xs: typing.Any) -> typing.Any:
    """Say along the leading axis whether all are true."""
    return jnp.all(xs, axis=0)


def reference_all(xs: typing.Any) -> typing.Any:
    """Say in NumPy whether all are true."""
    return np.all(xs, axis=0)


def _only(totals: typing.Any) -> typing.Any:
    return totals[0]


def _wide(xs: typing.Any) -> typing.Any:
    return np.float64 if jnp.issubdtype(xs.dtype, jnp.floating) else None


def _cell_identity(monoid: typing.Any, xs: typing.Any) -> typing.Any:
    """Take the identity as a scalar of NumPy, which both libraries accept as the start of a reduction."""
    return monoid.identity(jax.ShapeDtypeStruct((), xs.dtype))
