"""Casts that are asked for: rounding is meant, a value that the other dtype does not have is not."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.errors import message
from tapestry_jax.fabric.errors import FabricError

_REMEDY = "Pass cast=True to convert, or allocate the target with the dtype of the source."


def check_cast(given: np.dtype[Any], wanted: np.dtype[Any], cast: bool, where: str, *, remedy: str = _REMEDY) -> None:
    """That values of a dtype may become those of another.

    Raises:
      FabricError: where the dtypes differ and no cast is asked for, or would drop imaginary parts.
    """
    if given == wanted:
        return
    if not cast:
        raise FabricError(message(f"{where}: the dtypes differ", f"expected {wanted}, got {given}", remedy=remedy))
    if jnp.issubdtype(given, jnp.complexfloating) and not jnp.issubdtype(wanted, jnp.complexfloating):
        remedy = "Take the real part in a program, with fabric.apply."
        told = f"from {given} to {wanted} the imaginary part would be dropped"
        raise FabricError(message(f"{where}: this cast is none", told, remedy=remedy))


def converted(array: np.ndarray[Any, Any], wanted: np.dtype[Any], where: str) -> np.ndarray[Any, Any]:
    """The array in another dtype.

    Args:
      array: of any dtype that `check_cast` lets through.
      wanted: the dtype.
      where: the tensors and the box, for the message.

    Returns:
      Values rounded as NumPy does: to the nearest float, towards zero for integers; to True whatever is not 0.

    Raises:
      FabricError: where a value is out of the range of the dtype: too large, NaN or infinite for integers.
    """
    if array.dtype == wanted:
        return array
    if wanted == np.bool_:
        return np.asarray(array != 0)
    with np.errstate(all="ignore"):
        lost = _lost(array, wanted)
        if lost.any():
            first = tuple(int(at[0]) for at in np.nonzero(lost)) if array.ndim else ()
            raise FabricError(
                message(
                    f"{where}: {int(lost.sum()):,} values do not exist in {wanted}",
                    f"the first is {array[first]} at {first} of the box",
                    remedy="Clip or mask them in a program, with fabric.apply.",
                )
            )
        return np.asarray(array.astype(wanted))


def _lost(array: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Where a value is out of range."""
    if jnp.issubdtype(wanted, jnp.integer):
        info = jnp.iinfo(wanted)
        if array.dtype == np.bool_:
            return np.zeros(array.shape, np.bool_)
        if jnp.issubdtype(array.dtype, jnp.integer):
            # The short integers have no minimum of their own. Python's numbers: no dtype holds both uint64 and int64.
            array = array if array.dtype.kind in "iu" else array.astype(np.int64)
            low, high = int(array.min(initial=0)), int(array.max(initial=0))
            fits = int(info.min) <= low and high <= int(info.max)
            return np.zeros(array.shape, np.bool_) if fits else _outside(array, int(info.min), int(info.max))
        whole = np.trunc(array.astype(np.float64))
        # One past the largest is a power of two, which a double has exactly.
        return ~((whole >= float(int(info.min))) & (whole < float(int(info.max) + 1)))
    cast = array.astype(wanted)
    return (np.isfinite(array) & ~np.isfinite(cast)) | (np.isinf(array) & np.isnan(cast))


def _outside(array: np.ndarray[Any, Any], low: int, high: int) -> np.ndarray[Any, Any]:
    values = array.astype(object)
    return np.asarray((values < low) | (values > high), np.bool_)
