"""What a program says that its operands meet: `jnp.searchsorted`, that they rise; `unique_indices`, that none repeats.

A kernel that is right of such operands alone is right, and is to be run on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import is_literal, programs_inside

Origins = frozenset[int]


@dataclass(frozen=True)
class Preconditions:
    """Operands of a program, by number, that it takes to be of some kind.

    Attributes:
      rising: those that something is looked up in by halves.
      distinct: those that name the places of a scatter, none of them twice.
    """

    rising: set[int] = field(default_factory=set)
    distinct: set[int] = field(default_factory=set)


def preconditions(program: Any) -> Preconditions:
    """What a closed jaxpr takes its operands to be, where something that is computed of them has to be so."""
    found = Preconditions()
    _follow(program.jaxpr, [frozenset((number,)) for number in range(len(program.jaxpr.invars))], found)
    return found


def _follow(jaxpr: Any, given: Sequence[Origins], found: Preconditions) -> None:
    origins: dict[Any, Origins] = dict(zip(jaxpr.invars, given, strict=True))
    for equation in jaxpr.eqns:
        read = [frozenset[int]() if is_literal(each) else origins.get(each, frozenset()) for each in equation.invars]
        if equation.params.get("name") == "searchsorted" and read:
            found.rising.update(read[0])
        if equation.primitive.name.startswith("scatter") and equation.params.get("unique_indices"):
            found.distinct.update(read[1])
        for inner in programs_inside(equation):
            within = getattr(inner, "jaxpr", inner)
            # Of a `cond` the first is the choice; of what takes others nothing is known but all that there are.
            passed = read[1:] if equation.primitive.name == "cond" else read
            fits = len(passed) == len(within.invars)
            _follow(within, passed if fits else [_all(read)] * len(within.invars), found)
        origins.update(dict.fromkeys(equation.outvars, _all(read)))


def _all(read: Iterable[Origins]) -> Origins:
    return frozenset[int]().union(*read)
