"""What laws are checked on: a piece of a program, and how to draw arguments for it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from hypothesis.strategies import SearchStrategy

from laws.law import Law

DOMAINS = ("integers", "normal", "scaled")
"""Where all numbers of one example come from: small integers, whose sums and products are exact; numbers of ordinary
size; numbers of mixed magnitude."""

Recipe = Any
"""Plain data (numbers, strings, lists) from which an argument is built: it can be printed, stored and built again."""


class Subject(abc.ABC):
    """A piece whose laws are checked.

    Arguments are drawn as recipes, so that the smallest counterexample can be printed as the operations that made it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.cache: dict[str, Any] = {}

    @property
    @abc.abstractmethod
    def families(self) -> tuple[str, ...]:
        """The families of laws that speak about it."""

    @property
    @abc.abstractmethod
    def types(self) -> str:
        """The types it is checked at, for messages."""

    @property
    def depth(self) -> float:
        """Operations on the longest path of one application; dimensionless."""
        return 1.0

    @property
    def is_composed(self) -> bool:
        """Whether it is a program of steps, whose own rounding counts beside the conditioning of the whole."""
        return False

    @property
    def pieces(self) -> int:
        """In how many pieces it may make what it folds, and merge them."""
        return 8

    @abc.abstractmethod
    def strategy(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """Recipes of arguments of a kind, their numbers from one of `DOMAINS`."""

    def drawing(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """The same, made once: hypothesis looks at every new strategy for a while."""
        key = f"{kind} from {domain}"
        if key not in self.cache:
            self.cache[key] = self.strategy(kind, domain)
        return self.cache[key]

    def first(self, law: Law, seed: int) -> list[list[Recipe]]:
        """Arguments of a law that are looked at before any are drawn, one recipe for each argument."""
        del law, seed
        return []

    @abc.abstractmethod
    def build(self, kind: str, recipe: Recipe) -> Any:
        """The argument that a recipe stands for."""

    def read(self, kind: str, recipe: Recipe) -> None:
        """Raise where a recipe from elsewhere is none of a kind; what the piece itself raises is not seen here."""
        self.build(kind, recipe)

    @abc.abstractmethod
    def show(self, kind: str, recipe: Recipe) -> str:
        """The recipe as text."""

    def simplest(self, kind: str, recipe: Recipe, fails: Callable[[Recipe], bool]) -> Recipe:
        """The simplest recipe that fails as a given one does, where drawing knows none that is simpler."""
        del kind, fails
        return recipe

    def is_exact(self, kind: str, recipe: Recipe) -> bool:
        """Whether the argument holds only integers and short dyadic fractions."""
        del kind, recipe
        return False

    def compiled(self, law: Law) -> Any:
        """The law's function of the arguments alone, jitted once."""
        if law.name not in self.cache:
            function = partial(law.function, self)
            self.cache[law.name] = function if law.eager or law.judged == "object" else jax.jit(function)
        return self.cache[law.name]

    def wide(self, law: Law) -> tuple[Any, str]:
        """The law's function as it is run and differentiated in float64, and its name among those of other laws."""
        return partial(law.function, self), law.name
