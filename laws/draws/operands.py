"""Arrays for operands, drawn by domain and seed, so that a counterexample is two words whatever its size."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from combinators.errors import message, spelt
from combinators.index_space.tensor_type import TensorType
from laws.draws.cells import Struct, build_cell, is_dyadic, plain, show_cell, why_not_drawn
from laws.draws.listed import as_entries
from laws.draws.ties import TIES, tied
from laws.errors import LawError
from laws.subject import Recipe

SHOWN = 64
"""Entries up to which a counterexample is written out and made simpler; larger ones are domain and seed."""

Values = Sequence[Sequence[Any]] | SearchStrategy[Any] | None
"""Operands to use instead of drawn ones: listed, or drawn by a strategy."""


@final
@dataclass(frozen=True)
class Operands:
    """Types of arrays, and where their numbers come from.

    Args:
      types: anything with `shape` and `dtype`.
      values: arrays to use instead of drawn ones: a list with one sequence for each example, or a hypothesis strategy
        of such sequences (of the array itself where there is one). None to draw by domain and seed.

    Raises:
      LawError: when listed values are none, or not of these shapes.
    """

    types: tuple[Any, ...]
    values: Values = None

    def __post_init__(self) -> None:
        if self.values is None or isinstance(self.values, SearchStrategy):
            return
        if not len(self.values):
            raise LawError(message("values= of operands is empty.", remedy="Pass one tuple of operands or more."))
        for number, example in enumerate(self.values):
            given = [_described(leaf) for leaf in jax.tree.leaves(example)]
            wanted = [str(tuple(kind.shape)) for kind in self.types]
            if given != wanted:
                raise LawError(
                    message(
                        f"values[{number}] are not the operands.",
                        f"expected {len(wanted)} arrays of shapes {', '.join(wanted)}",
                        f"got      {', '.join(given) or 'none'}",
                        remedy="Pass a tuple of arrays for every example, one for each operand.",
                    )
                )

    @cached_property
    def recipes(self) -> list[Recipe]:
        """The listed examples, each by what it holds: its place in the list may be another's tomorrow."""
        assert self.values is not None and not isinstance(self.values, SearchStrategy)
        return [["values", fingerprint(example)] for example in self.values]

    def strategy(self, domain: str) -> SearchStrategy[Any]:
        """Draw recipes: domain and seed, what a listed example holds, or all entries."""
        if self.values is None:
            return arrays(domain)
        if isinstance(self.values, SearchStrategy):
            return self.values.map(lambda drawn: ["entries", *as_entries("values", drawn, self.types)])
        return st.sampled_from(self.recipes)

    def build(self, recipe: Any) -> list[Any]:
        """The arrays of a recipe.

        Raises:
          LawError: when it stands for listed values that are not listed here.
        """
        if recipe[0] == "values":
            values: Any = self.values
            return [np.asarray(leaf) for leaf in jax.tree.leaves(values[self._place(recipe)])]
        if recipe[0] != "entries":
            return [*build_arrays(self.types, recipe)]
        structs = [Struct(tuple(kind.shape), kind.dtype) for kind in self.types]
        return [build_cell(struct, entries) for struct, entries in zip(structs, recipe[1:], strict=True)]

    def show(self, recipe: Any) -> str:
        """A recipe as text."""
        if recipe[0] == "values":
            return f"values[{self._place(recipe)}]"
        if recipe[0] != "entries":
            return show_arrays(self.types, recipe)
        return ", ".join(show_cell(array.tolist()) for array in self.build(recipe))

    def is_exact(self, recipe: Any) -> bool:
        """Whether the arrays hold small integers and short dyadic fractions."""
        if recipe[0] == "values":
            return False
        return is_exact_recipe(recipe) if recipe[0] != "entries" else is_dyadic(recipe[1:])

    def simplest(self, recipe: Any, fails: Callable[[Recipe], bool]) -> Recipe:
        """Write drawn arrays entry by entry, as many 0, 1 or whole as fail all the same.

        Args:
          recipe: of a counterexample.
          fails: whether another recipe is one too.

        Returns:
          The last recipe that failed: the given one where arrays are listed, large or no real numbers.
        """
        kinds = self.types
        drawn = self.values is None and recipe[0] != "entries"
        if sum(math.prod(kind.shape) for kind in kinds) > SHOWN or any(why_not_drawn(kind.dtype) for kind in kinds):
            return recipe
        best = ["entries", *map(plain, self.build(recipe))] if drawn else recipe
        if best[0] != "entries" or (drawn and not fails(best)):
            return recipe
        for place in range(1, len(best)):
            before, behind = best[:place], best[place + 1 :]
            best = [*before, _simpler(best[place], lambda part: fails([*before, part, *behind])), *behind]  # noqa: B023
        return best

    def _place(self, recipe: Recipe) -> int:
        listed = self.values is not None and not isinstance(self.values, SearchStrategy)
        if not listed or recipe not in self.recipes:
            raise LawError(
                message(
                    "the counterexample is of operands that are not listed in values= here.",
                    remedy="Pass the values= that the law was checked with, of the same dtypes; their order is free.",
                )
            )
        return self.recipes.index(recipe)


def _simpler(entries: Any, fails: Callable[[Any], bool]) -> Any:
    """An array's entries with all of them 0 where that fails, else each the first of 0, 1 and whole that does."""
    if not isinstance(entries, list):
        return next((value for value in _simple(entries) if value != entries and fails(value)), entries)
    best = cast("list[Any]", entries)
    zeros = [type(entry)(0) for entry in best]
    if zeros != best and fails(zeros):
        return zeros
    for i, entry in enumerate(best):
        before, behind = best[:i], best[i + 1 :]
        tried = (value for value in _simple(entry) if value != entry)
        best = [*before, next((value for value in tried if fails([*before, value, *behind])), entry), *behind]
    return best


def _simple(entry: Any) -> list[Any]:
    """Values of the type of an entry, the simplest first."""
    whole = [float(round(entry))] if isinstance(entry, float) and math.isfinite(entry) else []
    return [type(entry)(0), type(entry)(1), *whole]


def fingerprint(example: Any) -> str:
    """A few letters that stand for all entries of some arrays, on every machine."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(example):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def _described(leaf: Any) -> str:
    """The shape of an array or number; what is neither as it is."""
    return str(np.shape(leaf)) if np.asarray(leaf).dtype.kind not in "OSU" else f"{spelt(leaf, 40)}"


def arrays(domain: str) -> SearchStrategy[Any]:
    """Draw a seed, and put the domain before it."""
    return st.integers(0, 9999).map(lambda seed: [domain, seed])


def build_arrays(types: Sequence[Any], recipe: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Fill arrays of the given types.

    Floats are small integers (whose sums and products are exact), `nonzero` ones of these, `highs` and `lows`, whose
    largest or smallest values tie, normal numbers, `small` ones, which are normal numbers over 8, or normal numbers
    scaled by powers of two between 1/64 and 64. Integers are 0 to 3: small enough to be an index, and exact. Booleans
    are fair.

    Args:
      types: anything with `shape` and `dtype`.
      recipe: domain and seed.
    """
    domain, seed = recipe
    source = np.random.default_rng(seed)
    return [_array(tuple(kind.shape), np.dtype(kind.dtype), domain, source) for kind in types]


def show_arrays(types: Sequence[Any], recipe: Sequence[Any]) -> str:
    """A recipe as text: `integers(seed=3): float32(batch=4)`."""
    domain, seed = recipe
    listed = ", ".join(
        str(kind) if isinstance(kind, TensorType) else f"{kind.dtype}{list(kind.shape)}" for kind in types
    )
    return f"{domain}(seed={seed}): {listed}"


def is_exact_recipe(recipe: Sequence[Any]) -> bool:
    """Whether the domain is one of small integers."""
    return recipe[0] in ("integers", "nonzero", *TIES)


def _array(shape: tuple[int, ...], dtype: Any, domain: str, source: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype == np.bool_:
        return source.integers(0, 2, shape).astype(dtype)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return source.integers(0, 4, shape).astype(dtype)
    filled = _floats(shape, domain, source)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        filled = filled + 1j * _floats(shape, domain, source)
    return np.asarray(filled).astype(dtype)


def _floats(shape: tuple[int, ...], domain: str, source: np.random.Generator) -> Any:
    if domain == "integers":
        return source.integers(-4, 5, shape).astype(np.float64)
    if domain == "nonzero":
        return source.integers(1, 5, shape) * source.choice([-1.0, 1.0], shape)
    if domain in TIES:
        return tied(shape, domain, source)
    normal = source.standard_normal(shape) / (8 if domain == "small" else 1)
    return normal * 2.0 ** source.integers(-6, 7, shape) if domain == "scaled" else normal
