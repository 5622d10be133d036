"""Looking for a counterexample: draw arguments, compare the sides of a law, shrink what fails."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from combinators.arguments import read_flag
from laws.errors import LawError, whole_number
from laws.law import Law
from laws.subject import DOMAINS, Recipe, Subject
from laws.verdicts.conditioning import coarsest, magnitudes, wide_sides
from laws.verdicts.noise import SAMPLES, Noise
from laws.verdicts.rounded import FLOAT32
from laws.verdicts.verdict import Terms, Verdict, compare, unit_roundoff


@final
@dataclass(frozen=True)
class Search:
    """How hard to look.

    Attributes:
      examples: arguments drawn for every law; fewer where there are fewer.
      seed: of the draws; the same seed gives the same draws.
      shrink: look for the smallest counterexample once there is one.

    Raises:
      LawError: when there is no example, the seed is no integer, or `shrink` no flag.
    """

    examples: int = 50
    seed: int = 0
    shrink: bool = True

    def __post_init__(self) -> None:
        # Hypothesis takes plain integers only, and users pass those of NumPy.
        object.__setattr__(self, "examples", whole_number("laws: examples", self.examples, least=1))
        object.__setattr__(self, "seed", whole_number("laws: seed", self.seed, least=0))
        object.__setattr__(self, "shrink", read_flag(self.shrink, "laws: shrink=", LawError))


@final
@dataclass(frozen=True)
class Failure:
    """A counterexample.

    Attributes:
      law: the law that does not hold.
      subject: what it does not hold for.
      recipe: the arguments, one recipe each.
      verdict: how the sides differ.
      seed: of the search that found it.
      tried: examples until the first counterexample, that one among them; 0 where none was searched for.
    """

    law: Law
    subject: Subject
    recipe: list[Recipe]
    verdict: Verdict
    seed: int
    tried: int = 0


def search(law: Law, subject: Subject, how: Search) -> Failure | int:
    """Look for arguments on which a law does not hold.

    Returns:
      The smallest counterexample found, or how many examples the law held on.
    """
    count = first = 0

    def fails(recipe: Any) -> bool:
        nonlocal count, first
        count += 1
        broken = not judge(law, subject, list(recipe)).holds
        first = first or (count if broken else 0)
        return broken

    kinds = [kind for _, kind in law.takes]
    strategy = st.one_of([st.tuples(*(subject.drawing(kind, domain) for kind in kinds)) for domain in DOMAINS])
    given = subject.first(law, how.seed)[: how.examples]
    found: list[Recipe] | None = next((recipe for recipe in given if fails(recipe)), None)
    left = how.examples - len(given) if law.takes else 1
    if found is None and left:
        found = _drawn(strategy, fails, left, how)
    if found is None:
        return count
    if how.shrink:
        found = _simplest(law, subject, found)
    return Failure(law, subject, found, judge(law, subject, found), how.seed, first)


def _drawn(
    strategy: SearchStrategy[Any], fails: Callable[[Any], bool], examples: int, how: Search
) -> list[Recipe] | None:
    """The recipe of a drawn counterexample, or None."""
    quiet = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if how.shrink else (Phase.generate,),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    try:
        return list(find(strategy, fails, settings=quiet, random=Random(how.seed)))
    except (NoSuchExample, Unsatisfiable):
        return None


def _simplest(law: Law, subject: Subject, recipe: list[Recipe]) -> list[Recipe]:
    """Make one argument after the other simpler, as long as the law fails in the same way."""
    kind = judge(law, subject, recipe).kind

    def fails(recipe: list[Recipe]) -> bool:
        verdict = judge(law, subject, recipe)
        return not verdict.holds and verdict.kind == kind

    for i, (_, of) in enumerate(law.takes):
        before, behind = recipe[:i], recipe[i + 1 :]
        simplest = subject.simplest(of, recipe[i], lambda part: fails([*before, part, *behind]))  # noqa: B023
        recipe = [*before, simplest, *behind]
    return recipe


def judge(law: Law, subject: Subject, recipe: list[Recipe]) -> Verdict:
    """Compare the sides of a law on one example.

    Args:
      law: any law that applies.
      subject: what it is about.
      recipe: one recipe for every argument that the law takes.

    Returns:
      The verdict. What the subject raises breaks the law: its two sides have no value.
    """
    # A GPU would multiply float32 matrices with ten bits of mantissa, which is no property of the algebra.
    with jax.default_matmul_precision("highest"), np.errstate(all="ignore"):
        try:
            arguments = [subject.build(kind, part) for (_, kind), part in zip(law.takes, recipe, strict=True)]
            sides = subject.compiled(law)(*arguments)
            left, right = sides if law.oracle is None else (sides[0], law.oracle(subject, *arguments))
            if law.judged != "object":
                left, right = jax.device_get((left, right))
        except Exception as error:  # noqa: BLE001 - the code under test may raise anything
            return Verdict(False, "raised", error=error)
        exact = all(subject.is_exact(kind, part) for (_, kind), part in zip(law.takes, recipe, strict=True))

        function, key = subject.wide(law)

        def measure(picks: list[int]) -> np.ndarray[Any, Any] | None:
            return magnitudes(function, arguments, picks, of=law.scaled_by, cache=subject.cache, key=key)

        @functools.cache
        def asked() -> tuple[np.ndarray[Any, Any], ...] | None:
            return wide_sides(function, arguments, cache=subject.cache, key=key)

        depth, oracle = law.depth * subject.depth, law.oracle is not None
        unit = 0.0 if law.judged == "object" else unit_roundoff((arguments, left))

        @functools.cache
        def inside() -> float:
            return max(unit, coarsest(function, arguments, cache=subject.cache, key=key))

        noise = _noise(law, subject, (function, arguments, key, str(recipe)), unit, depth, inside)

        def moved(samples: int = SAMPLES) -> np.ndarray[Any, Any] | None:
            found = None if noise is None else noise().spread(samples)
            return None if found is None else _largest(found, left)

        def along(samples: int) -> Sequence[tuple[np.ndarray[Any, Any], float]] | None:
            return None if noise is None else noise().along(samples)

        given = along if law.family == "plan" else None
        return compare(left, right, Terms(law.judged, depth, unit, exact, oracle, measure, asked, moved, inside, given))


def _noise(
    law: Law, subject: Subject, of: tuple[Any, Any, str, str], unit: float, depth: float, inside: Callable[[], float]
) -> Callable[[], Noise] | None:
    """What rounds beside the conditioning; None where nothing does."""
    function, arguments, key, drawn = of
    make = functools.partial(Noise, function, arguments, subject.cache, key)
    if law.oracle is not None:
        # What the steps lose is what a reference is there to find. What rounded arguments may give counts.
        return functools.cache(lambda: make(moved=depth * unit, steps=False))
    if law.family == "plan":
        # A plan runs the very program that it is compared with, on the same arguments; so do several of its laws.
        def given() -> Noise:
            if subject.cache.get("noise of", ("",))[0] != (key, drawn):
                noise = make(moved=0.0, pieces=subject.pieces if inside() > FLOAT32 else 1)
                subject.cache["noise of"] = (key, drawn), noise
            return subject.cache["noise of"][1]

        return given
    if subject.is_composed or law.is_composed:
        return functools.cache(lambda: make(moved=unit, pieces=subject.pieces if inside() > FLOAT32 else 1))
    return None


def _largest(found: np.ndarray[Any, Any], side: Any) -> np.ndarray[Any, Any]:
    """The larger of what the sides round, entry by entry; they follow each other."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(side) if jnp.issubdtype(np.asarray(leaf).dtype, jnp.inexact))
    return found.reshape(-1, size).max(axis=0)
