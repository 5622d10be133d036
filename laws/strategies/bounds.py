"""The range that numbers of a dtype are drawn from, and what has no place in it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import message, spelt
from laws.draws.cells import Number, why_not_drawn
from laws.draws.listed import first_misfit
from laws.errors import LawError


@final
@dataclass(frozen=True)
class Bounds:
    """A range of a dtype's numbers.

    Attributes:
      low: least number; that of the dtype where none was given.
      high: largest number.
      ends: those of the two that were given.
    """

    low: Number
    high: Number
    ends: tuple[Number, ...] = ()

    def __contains__(self, x: Any) -> bool:
        return not self.ends or bool(self.low <= x <= self.high)

    def fit(self, x: Number) -> Number:
        """Move a number into the range: reflected at its one end, and wrapped around at the other."""
        if not self.ends:
            return x
        if self.low in self.ends:
            return min(self.low + self._wrapped(abs(x - self.low)), self.high)
        return max(self.high - self._wrapped(abs(x - self.high)), self.low)

    def _wrapped(self, distance: Number) -> Number:
        span = self.high - self.low
        if isinstance(span, int):
            return int(distance) % (span + 1)
        return math.fmod(distance, span) if span else 0.0


def bounds_of(dtype: Any, low: Any, high: Any) -> Bounds:
    """Bring bounds to a dtype: integers between them, floats rounded as NumPy rounds what it compares with.

    Args:
      dtype: boolean, integer or real float.
      low: least number, or None.
      high: largest number, or None.

    Returns:
      Bounds that are numbers of the dtype.

    Raises:
      LawError: when a bound is no number, none lies between them, or numbers of the dtype are not drawn.
    """
    if (why := why_not_drawn(dtype)) is not None:
        raise LawError(message("laws.values: this type is not drawn.", why, remedy="Draw what can be drawn of it."))
    for name, bound in (("min", low), ("max", high)):
        if bound is not None and not (_is_number(bound) and not math.isnan(bound)):
            raise LawError(
                message(f"laws.values: {name} is no number.", f"got {spelt(bound, 60)}", remedy="Pass a number.")
            )
    # An infinite end bounds nothing.
    low, high = None if low == -math.inf else low, None if high == math.inf else high
    is_whole = dtype == jnp.bool_ or jnp.issubdtype(dtype, jnp.integer)
    found = _whole(dtype, low, high) if is_whole else _floats(dtype, low, high)
    if found is None:
        ends = f"{'the least' if low is None else low} and {'the largest' if high is None else high}"
        raise LawError(
            message(
                f"laws.values: no number lies between {ends}.",
                f"dtype {np.dtype(dtype).name}",
                remedy="Swap min and max, or widen them to numbers of the dtype.",
            )
        )
    return found


def check_numbers(role: str, listed: Any, dtype: Any, bounds: Bounds | None = None) -> None:
    """Refuse listed numbers that a dtype does not hold, or that lie outside of a range.

    Raises:
      LawError: when there is one, or the list is empty.
    """
    if not isinstance(listed, Collection) and not (isinstance(listed, np.ndarray | jax.Array) and listed.ndim):
        raise LawError(
            message(
                f"laws.values: {role}= is no list.",
                f"got {type(listed).__name__}: {spelt(listed, 60)}",
                remedy="List numbers of the dtype.",
            )
        )
    problems: list[str] = []
    entries: list[Any] = list(cast("Sequence[Any]", listed))
    for entry in entries:
        if not _is_number(entry):
            problems.append(f"{spelt(entry, 60)} is no number")
        elif first_misfit(entry, dtype) is not None:
            problems.append(f"{spelt(entry, 60)} is no {np.dtype(dtype).name}")
        elif bounds is not None and np.asarray(entry, dtype) not in bounds:
            problems.append(f"{spelt(entry, 60)} does not lie between {bounds.low} and {bounds.high}")
    if problems or not entries:
        raise LawError(
            message(
                f"laws.values: {role}= {'cannot be drawn' if problems else 'is empty'}.",
                *problems[:8],
                remedy="List numbers of the dtype, between min and max where these are given.",
            )
        )


def _is_number(x: Any) -> bool:
    if isinstance(x, bool | int | float):
        return True
    array = np.asarray(x) if isinstance(x, np.generic | np.ndarray) or hasattr(x, "dtype") else None
    return array is not None and array.ndim == 0 and why_not_drawn(array.dtype) is None


def _whole(dtype: Any, low: Any, high: Any) -> Bounds | None:
    least, largest = (0, 1) if dtype == jnp.bool_ else (int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max))
    # Clipped first: an infinite bound has no ceiling.
    first = least if low is None or low <= least else math.ceil(low) if low <= largest else largest + 1
    last = largest if high is None or high >= largest else math.floor(high) if high >= least else least - 1
    return _bounds(first, last, low, high) if first <= last else None


def _floats(dtype: Any, low: Any, high: Any) -> Bounds | None:
    largest = float(jnp.finfo(dtype).max)
    least = -largest if low is None else float(low)
    most = largest if high is None else float(high)
    if least > most or least > largest or most < -largest:
        return None
    first, last = (float(np.asarray(min(max(end, -largest), largest), dtype)) for end in (least, most))
    return _bounds(first, last, low, high)


def _bounds(first: Number, last: Number, low: Any, high: Any) -> Bounds:
    given = ((first, low), (last, high))
    return Bounds(first, last, tuple(end for end, bound in given if bound is not None))
