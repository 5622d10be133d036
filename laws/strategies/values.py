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

from combinators.errors import message, spelt
from laws.draws.cells import Number, numbers
from laws.errors import LawError
from laws.strategies.bounds import Bounds, bounds_of, check_numbers
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
      min: least entry; weights take `min=0`. Bounds are clipped to the dtype, and rounded to it.
      max: largest entry; tokens take `min=0, max=vocabulary - 1`.
      elements: draws the entries instead: a hypothesis strategy of numbers, of which those between the bounds are
        taken, or a list to choose from.
      special: further entries, such as `-inf` for what is masked; they need not lie between the bounds.

    Returns:
      A strategy of pytrees of NumPy arrays: for `hypothesis.given`, and for `values=` of `check` and `assert_lawful`.

    Raises:
      LawError: where the dtype has no number in the range, an element lies outside of it or is no number of the dtype,
        or the type is none.

    Example:
      >>> import jax.numpy as jnp, tapestry_jax as tp
      >>> tokens = values(tp.TensorType({"seq": 3}, jnp.int32), min=0, max=127)
      >>> tp.laws.assert_lawful(tp.monoids.Max, values=tokens, laws="associativity", examples=5).held
      ('monoid.associativity',)
    """
    leaves, tree = jax.tree.flatten(type)
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves):
        raise LawError(
            message(
                "laws.values: this is no type of arrays.",
                f"got {spelt(type)}",
                remedy="Pass a tp.TensorType, a jax.ShapeDtypeStruct, an array, or a pytree of these.",
            )
        )

    bounds = [bounds_of(leaf.dtype, min, max) for leaf in leaves]
    for leaf, within in zip(leaves, bounds, strict=True):
        if elements is not None and not isinstance(elements, SearchStrategy):
            check_numbers("elements", elements, leaf.dtype, within)
        if not isinstance(special, tuple) or len(special):
            check_numbers("special", special, leaf.dtype)

    def of_domain(domain: str) -> SearchStrategy[Any]:
        listed = zip(leaves, bounds, strict=True)
        drawn = [_array(leaf, _entries(leaf, domain, within, elements, special)) for leaf, within in listed]
        return st.tuples(*drawn).map(lambda arrays: jax.tree.unflatten(tree, list(arrays)))

    return st.one_of([of_domain(domain) for domain in DOMAINS])


def _entries(
    leaf: Any,
    domain: str,
    bounds: Bounds,
    elements: SearchStrategy[Any] | Sequence[Any] | None,
    special: Sequence[float],
) -> SearchStrategy[Number]:
    if isinstance(elements, SearchStrategy):
        drawn = elements.filter(lambda x: x in bounds)
    elif elements is not None:
        drawn = st.sampled_from(list(elements))
    else:
        drawn = numbers(leaf.dtype, domain).map(bounds.fit)
        drawn = st.one_of(drawn, st.sampled_from(bounds.ends)) if bounds.ends else drawn
    return st.one_of(drawn, st.sampled_from(list(special))) if len(special) else drawn


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
