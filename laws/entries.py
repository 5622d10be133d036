"""Arrays for users' own constraints: in a range, of chosen elements, with special values among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from combinators.errors import message
from laws.cells import Number, numbers
from laws.errors import LawError
from laws.subject import DOMAINS

MOST_ENTRIES = 64
"""Entries of an array that are drawn one by one; larger arrays repeat what was drawn, shuffled."""


def values(
    type: Any,
    *,
    min: float | None = None,
    max: float | None = None,
    elements: SearchStrategy[Any] | Sequence[Any] | None = None,
    special: Sequence[float] = (),
) -> SearchStrategy[Any]:
    """Draw arrays of a type: small integers and dyadic fractions, where sums are exact, and numbers of all magnitudes.

    All floats of one draw come from one of three domains: small integers; sixteenths; numbers of 24 digits whose
    magnitudes are spread over the dtype's range, so that they cancel.

    Args:
      type: a `tp.TensorType`, `jax.ShapeDtypeStruct` or array, or a pytree of these.
      min: least entry; weights take `min=0`.
      max: largest entry; tokens take `min=0, max=vocabulary - 1`.
      elements: draws the entries instead: a hypothesis strategy of numbers, or a list to choose from.
      special: further entries, such as `-inf` for what is masked.

    Returns:
      A strategy of pytrees of NumPy arrays: for `hypothesis.given`, and for `values=` of `check` and `assert_lawful`.

    Raises:
      LawError: where the range is empty, or the type is none.

    Example:
      >>> import jax.numpy as jnp, tapestry_jax as tp
      >>> tokens = values(tp.TensorType({"seq": 3}, jnp.int32), min=0, max=127)
      >>> tp.laws.assert_lawful(tp.monoids.Max, values=tokens, laws="associativity", examples=5).held
      ('monoid.associativity',)
    """
    if min is not None and max is not None and min > max:
        raise LawError(message(f"laws.values: no number lies between {min} and {max}.", remedy="Swap them."))
    leaves, tree = jax.tree.flatten(type)
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves):
        raise LawError(
            message(
                "laws.values: this is no type of arrays.",
                f"got {type!r:.80}",
                remedy="Pass a tp.TensorType, a jax.ShapeDtypeStruct, an array, or a pytree of these.",
            )
        )

    def of_domain(domain: str) -> SearchStrategy[Any]:
        drawn = [_array(leaf, _entries(leaf.dtype, domain, min, max, elements, special)) for leaf in leaves]
        return st.tuples(*drawn).map(lambda arrays: jax.tree.unflatten(tree, list(arrays)))

    return st.one_of([of_domain(domain) for domain in DOMAINS])


def _entries(
    dtype: Any,
    domain: str,
    low: float | None,
    high: float | None,
    elements: SearchStrategy[Any] | Sequence[Any] | None,
    special: Sequence[float],
) -> SearchStrategy[Number]:
    if elements is not None:
        drawn = elements if isinstance(elements, SearchStrategy) else st.sampled_from(list(elements))
    else:
        ends = [end for end in (low, high) if end is not None]
        drawn = numbers(dtype, domain).map(lambda x: fit(x, low, high))
        drawn = st.one_of(drawn, st.sampled_from(ends)) if ends else drawn
    return st.one_of(drawn, st.sampled_from(list(special))) if special else drawn


def fit(x: Number, low: float | None, high: float | None) -> Number:
    """Move a number into a range: reflected at its one end, or wrapped around between the two."""
    if isinstance(x, bool) or (low is None and high is None):
        return x
    kind = type(x)
    if low is not None and high is not None:
        span = high - low + (1 if kind is int else 0)
        inside = low + math.fmod(abs(x - low), span) if span else low
        return kind(min(inside, high))
    if low is not None:
        return kind(low + abs(x - low)) if x < low else x
    assert high is not None
    return kind(high - abs(x - high)) if x > high else x


def _array(leaf: Any, entries: SearchStrategy[Number]) -> SearchStrategy[np.ndarray[Any, Any]]:
    shape, dtype = tuple(leaf.shape), np.dtype(leaf.dtype)
    size = math.prod(shape)
    if size <= MOST_ENTRIES:
        return st.lists(entries, min_size=size, max_size=size).map(lambda xs: _filled(xs, shape, dtype))
    few = st.lists(entries, min_size=MOST_ENTRIES, max_size=MOST_ENTRIES)
    return st.tuples(few, st.integers(0, 9999)).map(
        lambda pair: _filled(np.random.default_rng(pair[1]).choice(np.asarray(pair[0], object), size), shape, dtype)
    )


def _filled(entries: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        wide = np.asarray(entries, np.float64 if jnp.issubdtype(dtype, jnp.inexact) else None)
        return wide.astype(dtype).reshape(shape)
