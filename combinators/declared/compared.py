"""Whether two runs of a kernel give the same numbers, but for rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.declared.drawn import is_key

# By bits of a float, of the largest number: much more than rounding, much less than another function.
TOLERANCES: Mapping[int, float] = {64: 1e-6, 32: 1e-3, 16: 0.1}
# Of whole numbers that are made of floats, so many may be rounded the other way.
_ROUNDED = 0.25
# How many times what comes of operands that are moved is rounding still.
_SLACK = 8


def numbers(array: Any) -> Any:
    """A NumPy array; of random keys their data."""
    return np.asarray(jax.random.key_data(array) if is_key(array.dtype) else array)


def is_narrow(array: Any) -> bool:
    """Whether it has so few bits that a sum of many cells, one by one, is another number than that of few."""
    return jnp.issubdtype(array.dtype, jnp.inexact) and jnp.finfo(array.dtype).bits < 32


def alike(one: Any, other: Any, near: Any, exact: bool, tolerances: Mapping[int, float] = TOLERANCES) -> bool:
    """Whether an array is equal to another but for rounding, which is no less than what `near` differs by.

    Nothing is said of numbers that are not finite.

    Args:
      one: of one run.
      other: of the other one.
      near: of the first, on operands that are moved by a little.
      exact: whether operands are whole numbers, which are not rounded.
      tolerances: of floats of so many bits, in the largest number.
    """
    if one.shape != other.shape:
        return True  # refused by its shapes, where it is run
    if not jnp.issubdtype(one.dtype, jnp.inexact):
        turned, differ = (float(np.mean(one != each)) if one.size else 0 for each in (near, other))
        return differ <= (0 if exact else max(_ROUNDED, _SLACK * turned))
    kind = jnp.finfo(one.dtype)
    tolerance = tolerances.get(kind.bits)
    if tolerance is None:
        return True
    wide = np.complex128 if jnp.issubdtype(one.dtype, jnp.complexfloating) else np.float64
    first, second, third = (each.astype(wide) for each in (one, other, near))
    known = np.isfinite(first) & np.isfinite(second) & np.isfinite(third)
    first, second, third = first[known], second[known], third[known]
    largest, turned = (np.max(np.abs(each), initial=0) for each in (first, first - third))
    # What is below the smallest normal number is zero on some devices.
    allowed = tolerance * largest + _SLACK * turned + 16 * float(kind.tiny)
    return bool(np.all(np.abs(first - second) <= allowed))
