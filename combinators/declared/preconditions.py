"""What a program says that its operands meet: that they rise, that none repeats, that they are places of an array.

A kernel that is right of such operands alone is right, and is to be run on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from combinators.kernels.elementwise import CALLS
from combinators.kernels.jaxprs import is_literal, programs_inside

Origins = frozenset[int]
"""Operands that a value is made of; `~number` of those of which it is only the order that a sort gave them."""


@dataclass(frozen=True)
class Preconditions:
    """Operands of a program, by number, that it takes to be of some kind.

    Attributes:
      rising: those that something is looked up in by halves, or that name places in their order.
      distinct: those that name the places of a scatter, none of them twice.
      places: those that name places of an array, which is read or written there.
    """

    rising: set[int] = field(default_factory=set)
    distinct: set[int] = field(default_factory=set)
    places: set[int] = field(default_factory=set)


def preconditions(program: Any) -> Preconditions:
    """What a closed jaxpr takes its operands to be, where something that is computed of them has to be so."""
    found = Preconditions()
    _follow(program.jaxpr, [frozenset((number,)) for number in range(len(program.jaxpr.invars))], found)
    return found


def looks_for_infinities(program: Any) -> bool:
    """Whether a program asks whether numbers are finite, or numbers: `x != x` is true of NaN alone."""
    return any(
        equation.primitive.name == "is_finite"
        or (equation.primitive.name in ("eq", "ne") and _is_of_the_infinite(*equation.invars))
        or any(map(looks_for_infinities, programs_inside(equation)))
        for equation in getattr(program, "jaxpr", program).eqns
    )


def _is_of_the_infinite(one: Any, other: Any) -> bool:
    return one is other or any(is_literal(each) and not np.all(np.isfinite(each.val)) for each in (one, other))


def _follow(jaxpr: Any, given: Sequence[Origins], found: Preconditions) -> list[Origins]:
    """Take down what a program says; returns what each of its results is made of."""
    origins: dict[Any, Origins] = dict(zip(jaxpr.invars, given, strict=True))
    for equation in jaxpr.eqns:
        read = [frozenset[int]() if is_literal(each) else origins.get(each, frozenset()) for each in equation.invars]
        if equation.params.get("name") == "searchsorted" and read:
            found.rising.update(_as_given(read[0]))
        named = _all(read[_places_of(equation)])
        found.places.update(_all_of(named))
        found.rising.update(_as_given(named) if equation.params.get("indices_are_sorted") else ())
        if equation.primitive.name.startswith("scatter") and equation.params.get("unique_indices"):
            found.distinct.update(_all_of(named))
        made = [_taken(equation, read)] * len(equation.outvars)
        branches: list[list[Origins]] = []
        for inner in programs_inside(equation):
            within = getattr(inner, "jaxpr", inner)
            # Of a `cond` the first is the choice; of what takes others nothing is known but all that there are.
            passed = read[1:] if equation.primitive.name == "cond" else read
            fits = len(passed) == len(within.invars)
            results = _follow(within, passed if fits else [_all(read)] * len(within.invars), found)
            if equation.primitive.name in CALLS and fits and len(results) == len(made):
                branches.append(results)
        if branches:
            made = list(map(_all, zip(*branches, strict=True)))
        if equation.primitive.name == "sort":
            # What is sorted rises, whatever it is made of; what goes with it, as places do, is in its order.
            made = [frozenset(~each if each >= 0 else each for each in origins) for origins in made]
        origins.update(zip(equation.outvars, made, strict=True))
    return [frozenset[int]() if is_literal(each) else origins.get(each, frozenset()) for each in jaxpr.outvars]


def _taken(equation: Any, read: Sequence[Origins]) -> Origins:
    """What results are made of; what is taken at places that a sort gave is in its order."""
    made = _all(read)
    if equation.primitive.name == "gather":
        return frozenset(~each if each >= 0 and ~each in read[1] else each for each in made)
    return made


def _as_given(origins: Origins) -> set[int]:
    """The operands that a value is made of as they are."""
    return {each for each in origins if each >= 0}


def _all_of(origins: Origins) -> set[int]:
    return {each if each >= 0 else ~each for each in origins}


def _places_of(equation: Any) -> slice:
    """Which operands of an equation name places."""
    name = equation.primitive.name
    if name == "gather" or name.startswith("scatter"):
        return slice(1, 2)
    return slice(*{"dynamic_slice": (1, None), "dynamic_update_slice": (2, None)}.get(name, (0, 0)))


def _all(read: Iterable[Origins]) -> Origins:
    return frozenset[int]().union(*read)
