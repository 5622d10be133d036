"""What connects monoids, as values with laws: semirings, homomorphisms and actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
from hypothesis.strategies import SearchStrategy

from combinators.arguments import read_function, read_optional_name
from combinators.errors import message, spelt
from combinators.merging.monoid import Monoid
from laws.draws.cells import Struct, build_cell, cells, is_dyadic, numbers, show_cell
from laws.errors import LawError
from laws.subject import Recipe, Subject
from laws.subjects.carrier import MonoidSubject, same_state


@final
@dataclass(frozen=True)
class Semiring:
    """Two monoids on one state, of which one distributes over the other: `Semiring(Max, Sum)` is the tropical one.

    Args:
      add: the additive monoid; its identity is the zero.
      multiply: the multiplicative monoid; its identity is the one.
      name: what messages call it.
    """

    add: Monoid
    multiply: Monoid
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, monoids=("add", "multiply"))


@final
@dataclass(frozen=True)
class Homomorphism:
    """A function of states that keeps the structure of monoids: `Homomorphism(jnp.exp, Sum, Prod)`.

    Args:
      function: state of `source` -> state of `target`.
      source: the monoid that is left.
      target: the monoid that is reached.
      name: what messages call it.
    """

    function: Callable[[Any], Any]
    source: Monoid
    target: Monoid
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, monoids=("source", "target"), functions=("function",))


@final
@dataclass(frozen=True)
class Action:
    """A monoid that acts on points: the earlier state acts first.

    Args:
      act: (state, point) -> point.
      monoid: whose states act.
      point: type of a point.
      name: what messages call it.
    """

    act: Callable[[Any, Any], Any]
    monoid: Monoid
    point: Struct
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, monoids=("monoid",), functions=("act",))
        leaves = jax.tree.leaves(self.point)
        if isinstance(self.point, type) or not leaves or not all(map(_is_type, leaves)):
            raise _refused("Action", "point", "the type of a point", self.point)


Structure = Semiring | Homomorphism | Action


def _check(structure: Any, monoids: Sequence[str], functions: Sequence[str] = ()) -> None:
    """Refuse fields that are not what the class says.

    Raises:
      LawError: for the first one.
    """
    called = type(structure).__name__
    for field in monoids:
        if not isinstance(getattr(structure, field), Monoid):
            raise _refused(called, field, "a tp.Monoid", getattr(structure, field))
    for field in functions:
        read_function(getattr(structure, field), f"`{field}` of laws.{called}", LawError)
    read_optional_name(structure.name, f"name= of laws.{called}", LawError)


def _is_type(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, type)


def _refused(called: str, field: str, expected: str, got: Any) -> LawError:
    return LawError(
        message(
            f"`{field}` of laws.{called} is not what it should be",
            f"got {type(got).__name__}: {spelt(got)}",
            remedy=f"Pass {expected}.",
        )
    )


def first_monoid(structure: Structure) -> Monoid:
    """The monoid whose states are drawn."""
    if isinstance(structure, Semiring):
        return structure.add
    return structure.source if isinstance(structure, Homomorphism) else structure.monoid


@final
class StructureSubject(Subject):
    """A structure, and the states of its first monoid.

    Args:
      structure: whose laws are checked.
      states: its first monoid, and how its states are made.
      name: what messages call it.
    """

    def __init__(self, structure: Structure, states: MonoidSubject, name: str) -> None:
        super().__init__(name)
        self.structure, self.states = structure, states

    @property
    def families(self) -> tuple[str, ...]:
        """The laws of the structure alone; its monoids have theirs."""
        return (type(self.structure).__name__.lower(),)

    @property
    def types(self) -> str:
        """The types of the first monoid's elements."""
        return self.states.types

    def observe(self, state: Any) -> Any:
        """What counts of a state of the first monoid."""
        return self.states.observe(state) if self.states.carrier.observe is not same_state else state

    def strategy(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """Draw a `state` by operations, or a `point`."""
        if kind == "state":
            return self.states.strategy(kind, domain)
        point = self._point
        return cells(point, numbers(point.dtype, domain))

    def build(self, kind: str, recipe: Recipe) -> Any:
        """Run the program of a state, or fill a point."""
        return self.states.build(kind, recipe) if kind == "state" else build_cell(self._point, recipe)

    def read(self, kind: str, recipe: Recipe) -> None:
        """Read the program of a state without running it, or fill a point."""
        self.states.read(kind, recipe) if kind == "state" else self.build(kind, recipe)

    def show(self, kind: str, recipe: Recipe) -> str:
        """The program of a state, or the numbers of a point."""
        return self.states.show(kind, recipe) if kind == "state" else show_cell(recipe)

    def is_exact(self, kind: str, recipe: Recipe) -> bool:
        """Whether all numbers are integers or short dyadic fractions."""
        return self.states.is_exact(kind, recipe) if kind == "state" else is_dyadic(recipe)

    @property
    def _point(self) -> Struct:
        assert isinstance(self.structure, Action)
        return self.structure.point
