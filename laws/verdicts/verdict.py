"""Whether two sides agree: exactly, up to conditioned rounding, or in range. Never by one fixed tolerance.

1. Exact: integers and booleans are equal, and so are floats wherever float64 shows that nothing was rounded.
2. Conditioned: `|left - right| <= 4 * depth * u * (|J| |x| + |f(x)|)`, with `u` half the machine epsilon; for programs
   of many steps also what these round by themselves; beside a reference in its place how far the result moves where
   each argument is rounded `depth` times, since digits that the steps lose are what the reference is there to find.
3. Range: where a side is infinite or NaN, the other is the same infinity, or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import numpy as np

from laws.verdicts.coarse import Along, beyond_noise, off_as_a_whole
from laws.verdicts.conditioning import PICKS
from laws.verdicts.rounded import FLOAT32, unit_of

STABILITY = 4.0
"""The constant of the conditioned bound. Over 400 draws each, the shipped monoids differ by at most 4.3 times `u` and
the magnitude, in associativity (where 8 times are allowed) and in bracketings of four states (12)."""

Kind = Literal["exact", "conditioned", "range", "structure", "raised"]
Measure = Callable[[list[int]], "Array | None"]
Sides = Callable[[], "tuple[Array, ...] | None"]
Spread = Callable[..., "Array | None"]
Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Verdict:
    """What came of comparing two sides.

    Attributes:
      holds: whether they agree.
      kind: which of the verdicts spoke.
      leaf: path of the leaf that differs, and the index in it.
      left, right: the entries, or texts, that differ.
      difference: of the entries.
      allowed: largest difference that rounding explains; 0 where nothing was rounded.
      own: how much of this the steps of a program make themselves.
      wide: the difference in float64; None where it is not known.
      whole: whether the leaf differs as a whole, and the numbers are lengths along it.
      sides: both sides, for messages.
      depth: operations on the longest path, as the bound counted them.
      error: what was raised.
    """

    holds: bool
    kind: Kind = "exact"
    leaf: str = ""
    left: Any = None
    right: Any = None
    difference: float = 0.0
    allowed: float = 0.0
    own: float = 0.0
    wide: float | None = None
    whole: bool = False
    sides: tuple[Any, Any] | None = None
    depth: float = 1.0
    error: Exception | None = None


HOLDS = Verdict(True)

_FLOOR = float(np.finfo(np.float32).tiny)  # what is smaller may be flushed to zero


@final
@dataclass(frozen=True)
class Terms:
    """On what terms two sides are compared.

    Attributes:
      judged: `rounding`, `range`, `bits` or `object`.
      depth: operations on the longest path.
      unit: the largest unit roundoff among the arguments.
      exact: whether the arguments are integers and short dyadic fractions.
      oracle: whether the right side comes from a reference, whose dtypes may be wider.
      measure: flat positions -> their magnitudes in float64; None where there is no derivative.
      sides: -> the sides in float64, each as one flat vector; None where it cannot be asked.
      spread: -> how far every entry moves by rounding that the magnitudes do not know, in so many samples; None where
        that is nothing, or cannot be asked.
      inside: -> the largest unit roundoff among the arguments, the results, and the steps between them.
      along: -> each inexact leaf in float64, and how far rounding moves it along itself, in so many samples. None
        unless both sides make the same steps of the same arguments, so that `spread` knows all rounding.
    """

    judged: str
    depth: float
    unit: float
    exact: bool
    oracle: bool
    measure: Measure
    sides: Sides
    spread: Spread
    inside: Callable[[], float]
    along: Along | None = None

    @property
    def fine(self) -> float:
        """The unit by which the whole is judged where what its coarser steps round is known."""
        return min(self.unit, FLOAT32) if self.along is not None else self.unit

    def is_coarse(self) -> bool:
        """Whether steps in less than float32 are judged by what they round."""
        return self.along is not None and self.inside() > FLOAT32


def compare(left: Any, right: Any, terms: Terms) -> Verdict:
    """Compare two sides of a law.

    Args:
      left: pytree of arrays, or of Python objects where they are judged as such.
      right: the same tree.
      terms: how.

    Returns:
      The verdict on the first leaf that disagrees.
    """
    structure = _structure(left, right)
    if structure is not None:
        return Verdict(False, "structure", sides=(left, right), left=structure[0], right=structure[1])
    offset = number = 0
    for (path, one), other in zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True):
        name = jax.tree_util.keystr(path)
        if terms.judged == "object":
            if one != other:
                return Verdict(False, "structure", name, one, other, sides=(left, right))
            continue
        a, b = np.asarray(one), np.asarray(other)
        problem = _shapes(a, b, terms.oracle)
        if problem is not None:
            return Verdict(False, "structure", name, *problem, sides=(left, right))
        found = _leaf(a, b, terms, offset) or _as_a_whole(a, b, terms, number)
        if found is not None:
            index, verdict = found
            place = name + (str(list(index)) if index else "")
            return replace(verdict, leaf=place, left=a[index], right=b[index], sides=(left, right), depth=terms.depth)
        if jnp.issubdtype(a.dtype, jnp.inexact):
            offset, number = offset + a.size, number + 1
    return HOLDS


def unit_roundoff(tree: Any) -> float:
    """The largest unit roundoff among the float dtypes of a tree; 0 without floats."""
    return max((unit_of(jnp.result_type(leaf)) for leaf in jax.tree.leaves(tree)), default=0.0)


def _structure(left: Any, right: Any) -> tuple[str, str] | None:
    trees = jax.tree.structure(left), jax.tree.structure(right)
    return None if trees[0] == trees[1] else (str(trees[0]), str(trees[1]))


def _shapes(a: Array, b: Array, oracle: bool) -> tuple[str, str] | None:
    same = a.shape == b.shape and (oracle or a.dtype == b.dtype)
    return None if same else (f"{a.dtype}{list(a.shape)}", f"{b.dtype}{list(b.shape)}")


def _leaf(a: Array, b: Array, terms: Terms, offset: int) -> tuple[tuple[int, ...], Verdict] | None:
    """The worst entry of a leaf that the sides disagree on, or None."""
    if terms.judged == "bits" and a.dtype == b.dtype:
        wrong = ~_same(a, b, signs=True)
        return _at(wrong, wrong, a, b, "exact") if wrong.any() else None
    equal = _same(a, b)
    if equal.all():
        return None
    if not jnp.issubdtype(a.dtype, jnp.inexact):
        return _at(~equal, ~equal, a, b, "exact")
    a, b = _wide(a), _wide(b)
    finite = np.isfinite(a) & np.isfinite(b)
    if (~finite & ~equal).any():
        return _at(~finite & ~equal, ~finite & ~equal, a, b, "range")
    # What is not finite is equal by now, and its difference means nothing.
    difference = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    bound = STABILITY * terms.depth * terms.fine * np.where(finite, np.maximum(np.abs(a), np.abs(b)), 0) + _FLOOR
    suspicious = np.flatnonzero(difference > bound)
    if terms.judged == "range":
        return _at(difference > bound, difference, a, b, "range", bound) if len(suspicious) else None
    # Without rounding there is no reason for any difference.
    sharp = np.zeros(0, int)
    if terms.exact and not terms.oracle:
        coarsest = terms.inside()
        sharp = np.flatnonzero(~equal & _is_short(a, coarsest) & _is_short(b, coarsest))
    return _explained(suspicious, a, b, difference, terms, offset) or _unrounded(
        _largest(sharp, difference), a, b, difference, terms, offset
    )


def _explained(
    suspicious: Array, a: Array, b: Array, difference: Array, terms: Terms, offset: int
) -> tuple[tuple[int, ...], Verdict] | None:
    """The first of some entries whose difference is more than rounding explains."""
    if not len(suspicious):
        return None
    unit = terms.unit
    if terms.is_coarse():
        found = beyond_noise(difference.ravel()[suspicious], offset + suspicious, terms.spread, STABILITY)
        # Where nobody knows what the steps round, all of them may be as coarse as the coarsest.
        unit = terms.inside() if found is None else terms.fine
        picks = _largest(suspicious, difference) if found is None else suspicious[found[:PICKS]]
    else:
        picks = _largest(suspicious, difference)
    places = [offset + int(pick) for pick in picks]
    measured = terms.measure(places) if places else None
    for number, (pick, place) in enumerate(zip(picks, places, strict=True)):
        one, other, gap = a.ravel()[pick], b.ravel()[pick], float(difference.ravel()[pick])
        here = float(measured[number] if measured is not None else max(abs(one), abs(other)))
        allowed, own = STABILITY * terms.depth * unit * here + _FLOOR, 0.0
        if gap > allowed:
            spread = terms.spread()
            if spread is not None:
                own = STABILITY * float(spread[place])
            elif not terms.oracle:
                allowed = STABILITY * terms.depth * max(unit, terms.inside()) * here + _FLOOR
        if gap > allowed + own:
            wide = _wide_difference(terms.sides(), place, one, other, terms.oracle)[0]
            return _index(pick, a), Verdict(
                False, "conditioned", difference=gap, allowed=allowed + own, own=own, wide=wide
            )
    return None


def _as_a_whole(a: Array, b: Array, terms: Terms, number: int) -> tuple[tuple[int, ...], Verdict] | None:
    """A leaf whose entries are off in one direction, each by less than it may be."""
    if a.size < 2 or not jnp.issubdtype(a.dtype, jnp.floating) or _same(a, b).all() or not terms.is_coarse():
        return None
    assert terms.along is not None
    conditioned = STABILITY * terms.depth * terms.fine
    found = off_as_a_whole((_wide(a) - _wide(b)).ravel(), number, terms.along, STABILITY, conditioned)
    if found is None:
        return None
    difference, allowed, own = found.tolist()
    return (), Verdict(False, "conditioned", difference=difference, allowed=allowed, own=own, whole=True)


def _unrounded(
    picks: Array, a: Array, b: Array, difference: Array, terms: Terms, offset: int
) -> tuple[tuple[int, ...], Verdict] | None:
    """The first of some entries that differ though nothing was rounded."""
    for pick in picks:
        place = offset + int(pick)
        if _wide_difference(terms.sides(), place, a.ravel()[pick], b.ravel()[pick], terms.oracle)[1]:
            return _index(pick, a), Verdict(False, "exact", difference=float(difference.ravel()[pick]))
    return None


def _index(pick: Any, a: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(pick, a.shape))


def _largest(entries: Array, difference: Array) -> Array:
    """The entries that differ most, where there are more than one call looks at."""
    return entries[np.argsort(difference.ravel()[entries])[::-1]][:PICKS]


def _wide_difference(
    found: tuple[Array, ...] | None, at: int, a: Any, b: Any, oracle: bool
) -> tuple[float | None, bool]:
    """The difference in float64, and whether what could run there comes out exactly as it did in working precision."""
    if found is None:
        return None, False
    sides = [side[at] for side in found]
    if len(sides) == 2:
        return float(abs(sides[0] - sides[1])), bool(sides[0] == a and sides[1] == b)
    return (float(abs(sides[0] - b)), False) if oracle else (None, bool(sides[0] == b))


def _is_short(values: Array, unit: float) -> Array:
    """Where numbers have so few digits that no rounding to `unit` left them.

    That float64 gives the same number is not enough: the code may round to float32 inside, as a quotient of integers
    does. What such a rounding leaves in numbers of this size lies far below 1/1024. Eight digits stay empty in every
    precision: bfloat16, which has no more, rounds to such numbers all the time, and then only 0 and 64 are short.
    """
    grid = max(2.0**-10, 64 * 2**8 * unit)
    scaled = np.real(values) / grid
    return (np.abs(values) <= 64) & (np.imag(values) == 0) & (np.floor(scaled) == scaled)


def _at(
    wrong: Array, weight: Array, a: Array, b: Array, kind: Kind, allowed: Any = None
) -> tuple[tuple[int, ...], Verdict]:
    index = _index(np.argmax(np.where(wrong, weight, 0)), a)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = float(np.abs(_wide(a)[index] - _wide(b)[index]))
    return index, Verdict(False, kind, difference=difference, allowed=0.0 if allowed is None else float(allowed[index]))


def _same(a: Array, b: Array, signs: bool = False) -> Array:
    """Where entries are equal; NaN equals NaN, and with `signs` zeros differ by their sign."""
    equal = np.asarray(a == b)
    if jnp.issubdtype(a.dtype, jnp.inexact):
        equal = equal | ((a != a) & (b != b))
        if signs and not jnp.issubdtype(a.dtype, jnp.complexfloating):
            equal = equal & ((np.signbit(a) == np.signbit(b)) | (a != a))
    return equal


def _wide(a: Array) -> Array:
    kind = np.complex128 if jnp.issubdtype(a.dtype, jnp.complexfloating) else np.float64
    return np.asarray(a.astype(kind))
