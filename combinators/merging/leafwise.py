"""Functions of arrays meant leaf by leaf on states, and the collectives that do the work of some of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.frozen import dataclass
from combinators.kernels.immutable import Immutable
from combinators.merging.extrema import Extremum, earlier, is_smooth

Native = Literal["sum", "max", "min", "or", "and"]

_NATIVE: dict[Any, Native] = {
    **dict.fromkeys((jnp.add, lax.add, operator.add, np.add), "sum"),
    **dict.fromkeys((jnp.maximum, lax.max, np.maximum), "max"),
    **dict.fromkeys((jnp.minimum, lax.min, np.minimum), "min"),
    **dict.fromkeys((jnp.logical_or, np.logical_or), "or"),
    **dict.fromkeys((jnp.logical_and, np.logical_and), "and"),
}
_PRODUCTS = frozenset((jnp.multiply, lax.mul, operator.mul, np.multiply))
# Functions of arrays, not of trees: on a state of several leaves they are meant leaf by leaf.
_OF_ARRAYS = frozenset({*_NATIVE, *_PRODUCTS, jnp.negative, lax.neg, operator.neg})


@final
@dataclass(frozen=True)
class Leafwise(Immutable):
    """A function of arrays, applied to every leaf of its arguments.

    Args:
      function: takes and returns arrays.
    """

    function: Callable[..., Any]

    def __call__(self, *states: Any) -> Any:
        """Apply the function to corresponding leaves.

        Args:
          states: pytrees of one structure.

        Returns:
          A pytree of the same structure.
        """
        kind = _NATIVE.get(self.function)
        if kind in ("max", "min"):
            return jax.tree.map(partial(_earlier, kind, self.function), *states)
        return jax.tree.map(self.function, *states)


def _earlier(kind: Extremum, function: Callable[..., Any], left: Any, right: Any) -> Any:
    left, right = jnp.asarray(left), jnp.asarray(right)
    return earlier(kind, left, right) if is_smooth(left) and left.dtype == right.dtype else function(left, right)


def leafwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a known function of arrays one of trees; leave any other function as it is.

    Args:
      function: such as `jnp.add`, or a function of states.

    Returns:
      A function of states.
    """
    return Leafwise(function) if _is_known(function, _OF_ARRAYS) else function


def native_of(combine: Callable[..., Any]) -> Native | None:
    """The elementwise collective that does the work of a `combine` on every leaf, or None."""
    function: Any = combine.function if isinstance(combine, Leafwise) else combine
    return _NATIVE[function] if _is_known(function, _NATIVE) else None


def is_lawful(combine: Callable[..., Any]) -> bool:
    """Whether a `combine` is known to be associative and commutative: a native one, or a product."""
    function: Any = combine.function if isinstance(combine, Leafwise) else combine
    return _is_known(function, _NATIVE) or _is_known(function, _PRODUCTS)


def _is_known(function: Any, table: Any) -> bool:
    try:
        return function in table
    except TypeError:  # an unhashable callable is none of ours
        return False
