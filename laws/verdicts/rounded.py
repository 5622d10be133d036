"""What one step of a program rounds: by how much, in which dtype, and a number of that size for each of its entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import jax.numpy as jnp
import numpy as np

_MOVING = """
    abs argmax argmin bitcast_convert_type broadcast_in_dim ceil clamp concatenate convert_element_type copy copy_p
    cummax cummin dynamic_slice dynamic_update_slice expand_dims floor gather imag iota max min neg optimization_barrier
    pad real reduce_max reduce_min reshape rev round select_n sign slice sort split squeeze stop_gradient transpose
"""
# Primitives that move or choose numbers and round none.
_EXACT = frozenset(_MOVING.split())
_FOLDS = frozenset(("dot_general", "conv_general_dilated", "reduce_sum", "reduce_window_sum", "cumsum", "scatter-add"))
_SHAPES = frozenset(
    (
        "broadcast_in_dim",
        "convert_element_type",
        "copy",
        "expand_dims",
        "reshape",
        "rev",
        "slice",
        "squeeze",
        "transpose",
    )
)
FLOAT32 = 2.0**-24
"""Steps in float32 and in wider dtypes are judged by the conditioning of the whole as well (`verdict`)."""


@final
@dataclass(frozen=True)
class Value:
    """An array of a run.

    Attributes:
      array: of type NumPy, or of random keys.
      other: the same, rounded otherwise; None where nothing rounded it.
      terms: of a fold -> the sum of the squares of what it adds up; None where it is none, or nobody asks.
    """

    array: Any
    other: Any = None
    terms: Callable[[], Any] | None = None


@final
@dataclass(frozen=True)
class Step:
    """How a result is rounded.

    Attributes:
      unit: the unit roundoff of its dtype.
      least: the smallest normal number; what is smaller has fewer digits.
    """

    unit: float
    least: float

    @cached_property
    def empty(self) -> int:
        """The binary digits of float64 that its numbers leave empty, as a mask."""
        return (1 << (53 - round(-np.log2(self.unit)))) - 1


def unit_of(dtype: Any) -> float:
    """The unit roundoff of a dtype; 0 of what is no float."""
    return float(jnp.finfo(dtype).eps) / 2 if jnp.issubdtype(dtype, jnp.inexact) else 0.0


def roundings(equation: Any) -> list[Step | None]:
    """How each result of an equation is rounded; None for what is not."""
    name = equation.primitive.name
    if name == "reduce_precision":
        exponent, mantissa = equation.params["exponent_bits"], equation.params["mantissa_bits"]
        return [Step(2.0 ** -(mantissa + 1), 2.0 ** (2 - 2 ** (exponent - 1)))]
    if name == "convert_element_type" and _narrows(equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype):
        return [_step_in(equation.outvars[0].aval.dtype)]
    if name in _EXACT:
        return [None] * len(equation.outvars)
    return [_step_in(out.aval.dtype) if _is_real(out.aval) else None for out in equation.outvars]


def _is_real(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.floating))


def _step_in(dtype: Any) -> Step:
    known = jnp.finfo(dtype)
    return Step(float(known.eps) / 2, float(known.tiny))


def _narrows(before: Any, after: Any) -> bool:
    if not (jnp.issubdtype(before, jnp.floating) and jnp.issubdtype(after, jnp.floating)):
        return False
    wide, narrow = jnp.finfo(before), jnp.finfo(after)
    return bool(narrow.nmant < wide.nmant or narrow.maxexp < wide.maxexp)


def is_fold(name: str) -> bool:
    """Whether a primitive adds up what it reads, with weights or without: of squares it gives the sum of squares."""
    return name in _FOLDS


def keeps_terms(name: str) -> bool:
    """Whether a primitive moves or casts the cells of a fold, each as a whole."""
    return name in _SHAPES


@final
class Rounding:
    """One sample of roundings.

    How a number is rounded depends on the number: equal ones are rounded alike, and their errors add up.

    Args:
      seed: of the sample.
      moved: by how much arguments are moved, relative; 0 where they are given.
      steps: whether steps round.
      held: whether numbers that the dtype of a step holds are left as they are.
      pieces: in how many pieces folds are made and merged; 1 where the conditioning speaks for them.
    """

    def __init__(self, seed: int, *, moved: float, steps: bool, held: bool, pieces: int) -> None:
        self._source = np.random.default_rng(seed)
        self._moved, self._steps, self._held, self.pieces = moved, steps, held, pieces

    def arguments(self, values: Sequence[Value]) -> list[Value]:
        """The arguments, moved."""
        if not self._moved:
            return list(values)
        return [
            Value(self._disturbed(each.array, self._moved) if is_float(each.array) else each.array) for each in values
        ]

    def of(self, value: Value, step: Step, twice: bool, once: bool = False) -> Value:
        """The result of a step, rounded.

        Args:
          value: the result.
          step: how.
          twice: whether it is wanted rounded otherwise, too.
          once: whether whoever computes it of the same numbers rounds it so.
        """
        if not self._steps:
            return value
        array, once = self._rounded(value.array, value.terms, step), once and step.unit <= FLOAT32
        if not twice or ((once or array is value.array) and value.other is None):
            return Value(array, None, value.terms)
        exact = value.array if value.other is None else value.other
        other = self._rounded(exact, value.terms, step)
        return Value(array, np.where(exact == value.array, array, other) if once else other, value.terms)

    def _rounded(self, value: Any, terms: Callable[[], Any] | None, step: Step) -> Any:
        exact = np.asarray(value)
        if terms is not None and step.unit > FLOAT32:
            return self._summed(exact, terms(), step)
        # Nothing would seem to be rounded in float64 itself.
        if not (self._held and step.empty):
            return self._disturbed(exact, step.unit, step.least)
        held = _is_held(exact, step)
        return value if held.all() else np.where(held, exact, self._disturbed(exact, step.unit, step.least))

    def _summed(self, value: Any, terms: Any, step: Step) -> Any:
        """A sum of `n` terms in any order: before the last addition come partial sums, each of which is rounded.

        Their squares add up to about `n (s**2 / 3 + t / 6)`, of a total `s` and squares of terms that add up to `t`.
        """
        squares = (1 + self.pieces / 3) * np.square(value) + self.pieces / 6 * terms
        # What is smaller than a normal number has the absolute error of the smallest one.
        size = step.unit * np.sqrt(squares + np.where(terms == 0, 0, (1 + self.pieces) * step.least**2))
        return value + np.where(np.isfinite(size), size, 0) * self._numbers(value + terms)

    def _disturbed(self, value: Any, unit: float, least: float = 0.0) -> Any:
        numbers = self._numbers(value)
        numbers *= unit
        numbers += 1
        numbers *= value
        if least < 1e-30:
            return numbers
        small = (np.abs(value) < least) & (value != 0)
        return np.where(small, value + least * unit * self._numbers(value), numbers) if small.any() else numbers

    def _numbers(self, value: Any) -> Any:
        """Between -1 and 1, as if drawn; equal for equal magnitudes."""
        bits = np.abs(value).view(np.int64)
        mixed = bits >> 31
        mixed ^= bits
        mixed *= int(self._source.integers(2**61, 2**62)) * 2 + 1
        return mixed * 2.0**-63


def is_float(array: Any) -> bool:
    """Whether it is an array of NumPy, of real floats."""
    return isinstance(array, np.ndarray | np.generic) and array.dtype.kind == "f"


def _is_held(value: Any, step: Step) -> Any:
    """Where a number has no more binary digits than a precision holds."""
    held = value.view(np.int64) & step.empty == 0
    return held if step.least < 1e-30 else held & ((np.abs(value) >= step.least) | (value == 0))
