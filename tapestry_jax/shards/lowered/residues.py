"""Numbers of two finite fields, in which sums and products are exact in whatever order they are made.

A float stands as a pair: one number modulo `P`, one modulo `Q`, where `P = 2 Q + 1` and both are primes. Arithmetic is
that of the fields. `exp` takes the second number to a power of a fixed base modulo `P`, so that `exp(x + y)` is
`exp(x) exp(y)`; the second number of what it gives is not known. Other functions give numbers that are drawn for what
they are given. Orders are those of the first numbers: not of real ones, but orders. Infinities are there; what is not
known is `UNKNOWN`.

Two programs that compute the same by the laws of fields, of orders and of powers so come to the same numbers. A pair
is one integer of 64 bits, which slices, gathers and sends as any other.

Source: numbers of fields in the place of floats, two of them for `exp`: Wu et al., "Mirage: A Multi-Level
Superoptimizer for Tensor Programs", 2024, section 5.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

P, Q, BASE = 2_147_483_579, 1_073_741_789, 4
_BITS = 31
_NONE = 2**_BITS - 1
"""No second number."""
MOST, LEAST, UNKNOWN = 2**62, -(2**62), -(2**63)
"""Infinity; minus infinity; what is not known."""
_HUGE = 1e29
"""Masks of finite programs are as good as infinite."""


def residues(floats: Any) -> Any:
    """Floats as pairs: an integer, a fraction of a power of 2."""
    values = np.asarray(floats).astype(np.float64)
    unique, places = np.unique(values, return_inverse=True)
    return np.array([_residue(float(x)) for x in unique], np.int64)[places].reshape(values.shape)


def drawn(shape: Sequence[int], rng: np.random.Generator) -> Any:
    """Numbers that nothing is known of."""
    return _pair(rng.integers(0, P, shape), rng.integers(0, Q, shape))


def first(x: Any) -> Any:
    """The first numbers, by which pairs are compared; infinities as they are."""
    return np.where(is_finite(x), x >> _BITS, x)


def only_first(own: Any) -> Any:
    """Pairs of which the first numbers alone are known."""
    return _pair(own, np.zeros_like(own), False)


def is_finite(x: Any) -> Any:
    """Which are pairs."""
    return (x > LEAST) & (x < MOST)


def is_unknown(x: Any) -> bool:
    """Whether any is not known."""
    return bool(np.any(x == UNKNOWN))


def add(x: Any, y: Any) -> Any:
    """Sums."""
    made = _both(x, y, lambda a, b, m: (a + b) % m)
    infinite = np.where(x == y, x, np.where(is_finite(x), y, np.where(is_finite(y), x, UNKNOWN)))
    return np.where(is_finite(x) & is_finite(y), made, _unless_unknown(x, y, infinite))


def absolute(x: Any) -> Any:
    """Without a minus."""
    return np.where((x < 0) & (x != UNKNOWN), negative(x), x)


def negative(x: Any) -> Any:
    """What is added to give 0."""
    made = _both(x, x, lambda a, b, m: (m - a) % m)
    return np.where(is_finite(x), made, np.where(x == MOST, LEAST, np.where(x == LEAST, MOST, UNKNOWN)))


def multiply(x: Any, y: Any) -> Any:
    """Products; of 0 with what is not known 0."""
    x, y = np.broadcast_arrays(x, y)
    made = _both(x, y, lambda a, b, m: a * b % m)
    is_zero = ((first(x) == 0) & (is_finite(y) | (y == UNKNOWN))) | ((first(y) == 0) & (x == UNKNOWN))
    return np.where(is_finite(x) & is_finite(y), made, np.where(is_zero, 0, UNKNOWN))


def inverse(x: Any) -> Any:
    """What is multiplied to give 1; of infinity 0."""
    own, other = x >> _BITS, x & _NONE
    made = _pair(_power(own, P - 2, P), _power(other % Q, Q - 2, Q), (other != _NONE) & (other != 0))
    known = np.where(is_finite(x) & (first(x) != 0), made, UNKNOWN)
    return np.where((x == MOST) | (x == LEAST), 0, known)


def power(x: Any, exponent: Any) -> Any:
    """Powers of integers, one or one for each."""
    own, other, times = x >> _BITS, x & _NONE, np.abs(np.asarray(exponent, np.int64))
    made = _pair(_power(own, times, P), _power(other, times, Q), other != _NONE)
    known = np.where(is_finite(x), made, UNKNOWN)
    return np.where(np.asarray(exponent) < 0, inverse(known), known)


def sign(x: Any) -> Any:
    """1, 0 or -1, by the first numbers."""
    return np.where(x == UNKNOWN, x, residues(np.sign(first(x))))


def exponential(x: Any, base: int = BASE) -> Any:
    """Powers of a base: of sums the products."""
    other = x & _NONE
    made = _pair(_power(np.full(np.shape(x), base, np.int64), other, P), np.zeros_like(other), False)
    known = np.where(is_finite(x) & (other != _NONE), made, UNKNOWN)
    return np.where(x == LEAST, 0, np.where(x == 0, residues(1.0), known))


def opaque(name: str, *given: Any) -> Any:
    """What a function gives of which nothing is known but that the same gives the same."""
    given = np.broadcast_arrays(*given)
    mixed = np.full(given[0].shape, zlib.crc32(name.encode()), np.uint64)
    for each in given:
        mixed = _mixed(mixed ^ first(each).astype(np.uint64))
    made = _pair((mixed % P).astype(np.int64), (_mixed(mixed) % Q).astype(np.int64))
    return _unless_unknown(*given, made)


def maximum(x: Any, y: Any) -> Any:
    """The larger ones."""
    return _unless_unknown(x, y, np.maximum(x, y))


def minimum(x: Any, y: Any) -> Any:
    """The smaller ones."""
    return _unless_unknown(x, y, np.minimum(x, y))


def folded(merge: Callable[[Any, Any], Any], x: Any, axis: int, identity: int) -> Any:
    """All along an axis, merged."""
    rows = np.moveaxis(x, axis, 0)
    if not len(rows):
        return np.full(rows.shape[1:], identity, np.int64)
    while len(rows) > 1:
        half = len(rows) // 2
        rows = np.concatenate([merge(rows[:half], rows[half : 2 * half]), rows[2 * half :]])
    return rows[0]


def running(merge: Callable[[Any, Any], Any], x: Any, axis: int) -> Any:
    """Everything up to each place along an axis, merged."""
    rows = [*np.moveaxis(x, axis, 0)]
    for place in range(1, len(rows)):
        rows[place] = merge(rows[place - 1], rows[place])
    return np.moveaxis(np.stack(rows), 0, axis) if rows else x


def _residue(x: float) -> int:
    if x != x:
        return UNKNOWN
    if abs(x) >= _HUGE:
        return MOST if x > 0 else LEAST
    above, below = x.as_integer_ratio()
    return int(_pair(above * pow(below, -1, P) % P, above * pow(below, -1, Q) % Q))


def _pair(own: Any, other: Any, has: Any = True) -> Any:
    own = np.asarray(own, np.int64) % P
    return (np.where(own > P // 2, own - P, own) << _BITS) | np.where(has, np.asarray(other, np.int64), _NONE)


def _both(x: Any, y: Any, of: Callable[[Any, Any, int], Any]) -> Any:
    """A rule for both fields; a second number is known of what has two."""
    one, other = x & _NONE, y & _NONE
    known = (one != _NONE) & (other != _NONE)
    near = np.where(is_finite(x), x >> _BITS, 0), np.where(is_finite(y), y >> _BITS, 0)
    return _pair(of(*near, P), of(np.where(known, one, 0), np.where(known, other, 0), Q), known)


def _power(x: Any, exponent: Any, modulus: int) -> Any:
    """By squares; of the exponent 31 bits are looked at."""
    found, square, left = np.ones(np.shape(x), np.int64), np.asarray(x, np.int64) % modulus, exponent
    for _ in range(_BITS):
        found = np.where(left & 1, found * square % modulus, found)
        square, left = square * square % modulus, left >> 1
    return found


def _mixed(x: Any) -> Any:
    """Bits spread over all (splitmix64)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _unless_unknown(*given: Any) -> Any:
    *read, made = given
    for each in read:
        made = np.where(each == UNKNOWN, UNKNOWN, made)
    return made
