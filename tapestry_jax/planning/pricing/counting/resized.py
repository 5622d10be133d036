"""A program at other sizes than those at which it was traced, without tracing it again.

It is traced where the size of every dimension is a prime number of its own. So each size in it tells by its factors
which dimensions it is the product of, and whatever the program is at other sizes follows by arithmetic. Kernels that
look at their sizes (windows, pieces, cases) are not the same program at all of them: whoever uses this has to hold one
more size against a trace.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import is_literal, is_program

_LEAST = 13
"""Smaller primes are factors of sizes that kernels have by themselves, such as blocks of 120."""
_SHARE = 5
"""Primes are about so much smaller than the whole dimension: what holds for both holds for blocks between them."""
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_SIZES = ("length", "fft_lengths")
"""Parameters of equations that are sizes, and that counting looks at."""


@dataclass(frozen=True, eq=False)
class Type:
    """The type of an array at other sizes."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable of a program at other sizes."""

    aval: Any


@dataclass(frozen=True, eq=False)
class Equation:
    """An equation of it."""

    primitive: Any
    params: Mapping[str, Any]
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Resized:
    """A program at other sizes: what counting looks at of a jaxpr."""

    constvars: tuple[Any, ...]
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]
    eqns: tuple[Equation, ...]

    @property
    def jaxpr(self) -> Resized:
        """Itself: programs inside of equations come with their constants."""
        return self


def primes_for(sizes: Mapping[str, int], others: Collection[int]) -> dict[str, int]:
    """A prime number for each dimension.

    Args:
      sizes: of the dimensions.
      others: sizes that stay, of which no prime may be a factor.
    """
    found: dict[str, int] = {}
    for name, size in sizes.items():
        candidates = itertools.count(max(size // _SHARE, _LEAST))
        found[name] = next(
            each
            for each in candidates
            if _is_prime(each) and each not in found.values() and all(other % each for other in others if other)
        )
    return found


def resized(jaxpr: Any, sizes: Mapping[int, int]) -> Resized:
    """A program at other sizes.

    Args:
      jaxpr: traced at prime sizes.
      sizes: for each prime what stands in its place.
    """
    return _Resizing(sizes).program(jaxpr)


class _Resizing:
    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        self.known: dict[int, int] = {}

    def program(self, jaxpr: Any) -> Resized:
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        variables: dict[Any, Variable] = {}

        def at(atom: Any) -> Any:
            if is_literal(atom):
                return atom
            found = variables.get(atom)
            if found is None:
                found = variables[atom] = Variable(self.type(atom.aval))
            return found

        def all_at(atoms: Any) -> tuple[Any, ...]:
            return tuple(map(at, atoms))

        equations = tuple(
            Equation(each.primitive, self.params(each.params), all_at(each.invars), all_at(each.outvars))
            for each in jaxpr.eqns
        )
        return Resized(all_at(jaxpr.constvars), all_at(jaxpr.invars), all_at(jaxpr.outvars), equations)

    def type(self, aval: Any) -> Any:
        shape = getattr(aval, "shape", None)
        return Type(tuple(map(self.size, shape)), aval.dtype) if shape else aval

    def params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        changed = {name: self.param(name, value) for name, value in params.items()}
        return {**params, **{name: value for name, value in changed.items() if value is not None}}

    def param(self, name: str, value: Any) -> Any:
        if is_program(value):
            return self.program(value)
        if name in _SIZES:
            return tuple(map(self.size, value)) if isinstance(value, tuple) else self.size(value)
        if isinstance(value, tuple) and value and all(map(is_program, value)):
            return tuple(map(self.program, value))
        return None

    def size(self, size: int) -> int:
        found = self.known.get(size)
        if found is None:
            found, rest = 1, size
            for prime, instead in self.sizes.items():
                while rest and rest % prime == 0:
                    rest //= prime
                    found *= instead
            found = self.known[size] = found * rest
        return found


def _is_prime(number: int) -> bool:
    """Miller and Rabin's test, with bases that decide below 3.3e24 (Sorenson, Webster 2015)."""
    if number < 2 or any(number % base == 0 for base in _BASES):
        return number in _BASES
    twos = (number - 1 & 1 - number).bit_length() - 1
    odd = number - 1 >> twos
    return all(_passes(pow(base, odd, number), number, twos) for base in _BASES)


def _passes(power: int, number: int, twos: int) -> bool:
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
