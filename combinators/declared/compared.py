"""Whether two runs of a kernel give the same numbers, but for rounding."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.declared.drawn import is_key
from combinators.kernels.jaxprs import programs_inside

# By bits of a float, of the largest number: much more than rounding, much less than another function.
TOLERANCES: Mapping[int, float] = {64: 1e-6, 32: 1e-3, 16: 0.1}
# One kernel is asked twice on nearly the same numbers, so less is rounding than where boxes are put together.
CLOSE: Mapping[int, float] = {64: 1e-12, 32: 1e-5, 16: 0.03}
# Of whole numbers that are made of floats, so many may be rounded the other way.
_ROUNDED = 0.25
# How many times what comes of operands that are moved is rounding still.
_SLACK = 8
# What data choose tells something as long as results are no larger.
_ORDINARY = 1e3
# In how many ways operands are moved before what they come to is called another number.
_MOVES = 3


def numbers(array: Any) -> Any:
    """A NumPy array; of random keys their data."""
    return np.asarray(jax.random.key_data(array) if is_key(array.dtype) else array)


def is_narrow(array: Any) -> bool:
    """Whether it has so few bits that a sum of many cells, one by one, is another number than that of few."""
    return jnp.issubdtype(array.dtype, jnp.inexact) and jnp.finfo(array.dtype).bits < 32


def rounds(program: Any) -> bool:
    """Whether a program has floats of so few bits, or one inside of it has."""
    jaxpr = getattr(program, "jaxpr", program)
    atoms = itertools.chain(jaxpr.invars, *(equation.outvars for equation in jaxpr.eqns))
    return any(hasattr(atom.aval, "dtype") and is_narrow(atom.aval) for atom in atoms) or any(
        rounds(inner) for equation in jaxpr.eqns for inner in programs_inside(equation)
    )


def tolerances(programs: Iterable[Any], usual: Mapping[int, float] = TOLERANCES) -> Mapping[int, float]:
    """What programs may differ by: where something in them is of few bits, results of many are rounded as much."""
    return dict.fromkeys(usual, max(usual.values())) if any(map(rounds, programs)) else usual


def wide(array: Any) -> Any:
    """The dtype in which an array, or one of its type, is asked: what few bits tell is little more than rounding."""
    return np.dtype(np.float32) if is_narrow(array) else array.dtype


def are_ordinary(leaves: Sequence[Any]) -> bool:
    """Whether what is finite of some results is of such numbers that rounding does not hide one that is added."""
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all(np.max(np.abs(leaf), initial=0, where=np.isfinite(leaf)) <= _ORDINARY for leaf in floats)


def differ(
    one: Sequence[Any],
    other: Sequence[Any],
    near: Sequence[Any],
    again: Callable[[int], Sequence[Any]],
    exact: bool,
    allowed: Mapping[int, float] = TOLERANCES,
    finite: bool = False,
) -> bool:
    """Whether some arrays differ from others by more than rounding.

    What is exactly zero in one way, as the third moment of two cells, is rounded in the other: only runs of that one
    tell by how much. They are made where something differs at all.

    Args:
      one: of one run.
      other: of the other one.
      near: of the first, on operands that are moved by a little.
      again: of the other one, on operands that are moved in the n-th way.
      exact: whether operands are whole numbers, which are not rounded.
      allowed: by bits of a float, of the largest number.
      finite: whether what is finite in the first has to be so in the other, too.
    """
    ones, others, nears = (list(map(numbers, each)) for each in (one, other, near))
    if finite and any(map(_is_lost, ones, others)):
        return True

    def differing(place: int, rounded: Sequence[tuple[Any, Any]] = ()) -> bool:
        return not _alike(ones[place], others[place], nears[place], exact, allowed, rounded)

    apart = [place for place in range(len(ones)) if differing(place)]
    if not apart:
        return False
    moves = [list(map(numbers, again(number))) for number in range(_MOVES)]
    return any(differing(place, [(others[place], each[place]) for each in moves]) for place in apart)


def _is_lost(one: Any, other: Any) -> bool:
    """Whether something finite is not so in the other."""
    if one.dtype.kind in "biu" or one.shape != other.shape:
        return False
    return bool(np.any(np.isfinite(one) & ~np.isfinite(other)))


def _alike(
    one: Any,
    other: Any,
    near: Any,
    exact: bool,
    allowed: Mapping[int, float],
    rounded: Sequence[tuple[Any, Any]],
) -> bool:
    """Whether an array is equal to another but for rounding, which is no less than what `near` differs by.

    Nothing is said of numbers that are not finite. What pairs of `rounded` differ by is rounding as well.
    """
    if one.shape != other.shape:
        return True  # refused by its shapes, where it is run
    pairs = [(one, near), *rounded]
    if not jnp.issubdtype(one.dtype, jnp.inexact):
        share = [float(np.mean(first != second)) if one.size else 0 for first, second in [(one, other), *pairs]]
        return share[0] <= (0 if exact else max(_ROUNDED, _SLACK * max(share[1:])))
    kind = jnp.finfo(one.dtype)
    tolerance = allowed.get(kind.bits)
    if tolerance is None:
        return True
    wide = np.complex128 if jnp.issubdtype(one.dtype, jnp.complexfloating) else np.float64
    known = np.logical_and.reduce([np.isfinite(each) for each in (one, other, near)])
    off, *turned = (np.abs(first.astype(wide) - second.astype(wide)) for first, second in [(one, other), *pairs])
    rounding = max(np.max(each, initial=0, where=known & np.isfinite(each)) for each in turned)
    largest = np.max(np.abs(one), initial=0, where=known)
    # What is below the smallest normal number is zero on some devices.
    most = tolerance * float(largest) + _SLACK * float(rounding) + 16 * float(kind.tiny)
    return bool(np.all(off[known] <= most))
