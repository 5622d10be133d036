"""Checking laws: at once, as a test of pytest, or one counterexample again."""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from combinators.errors import message
from laws.catalogue import catalogue
from laws.counterexamples.known import KnownFailing
from laws.counterexamples.message import law_error
from laws.counterexamples.search import Failure, Search, judge
from laws.counterexamples.tokens import check_recipe, unpack
from laws.errors import LawError, TokenError
from laws.examine import nothing_checked, outcomes
from laws.given import given
from laws.law import Law
from laws.pieces import Asked
from laws.verdicts.outcome import Checked, Report


def assert_lawful(
    piece: Any,
    types: Sequence[Any] | None = None,
    *,
    lift: Callable[..., Any] | None = None,
    values: Any = None,
    observe: Callable[[Any], Any] | None = None,
    laws: str | Sequence[str] | None = None,
    name: str | None = None,
    known: Sequence[KnownFailing] = (),
    examples: int = 50,
    seed: int = 0,
    shrink: bool = True,
) -> Report:
    """Check the laws of a monoid, an aggregator, an arrow, a graph or a plan.

    States of monoids are drawn as trees of `identity`, `lift` and `combine`, and floats are judged by their
    conditioning, so that a correct piece is not refused for rounding, nor a wrong one let through for being small.

    Args:
      piece: what is checked. An arrow of one operation has the laws of its kind (map, fold, scan); composed arrows have
        those of arrows, and every operation inside has its own.
      types: of one element of every input of `lift`, or of the operands of an arrow: `tp.TensorType`,
        `jax.ShapeDtypeStruct` or arrays. What the library ships, leaves with a signature and monoids of single numbers
        do without.
      lift: for a monoid: cells of one element -> state.
      values: what to draw, as a list or a hypothesis strategy, such as `laws.values`: for a monoid states, and
        elements where there is a `lift`; for an aggregator elements (tuples of them where `lift` takes several); for an
        arrow or a plan tuples of operands.
      observe: for a monoid: state -> what counts of it; states are equal where this is. By default all of a state.
      laws: names or families of laws, such as `"associativity"` or `["map.split"]`; by default all that apply.
      name: what messages call the piece.
      known: laws that are known to fail, each as `known_failing(law, reason)`.
      examples: arguments drawn for every law.
      seed: of the draws.
      shrink: look for the smallest counterexample.

    Returns:
      A report: every law either held, or was not checked, and why.

    Raises:
      LawError: with the smallest counterexample of the first law that fails; or when nothing could be checked.

    Example:
      >>> import jax.numpy as jnp, tapestry_jax as tp
      >>> report = assert_lawful(tp.Monoid(0.0, jnp.add, commutative=True, name="Plus"), examples=5)
      >>> "monoid.associativity" in report.held, "monoid.inverse" in report.not_checked
      (True, True)
    """
    asked = Asked.of(piece, types=types, lift=lift, values=values, observe=observe, laws=laws, name=name, known=known)
    checked: list[Checked] = []
    for entry in outcomes(asked.selected, asked.subjects(), Search(examples, seed, shrink), asked.known):
        if entry.error is not None:
            raise entry.error
        checked.append(entry)
    if all(entry.why_not is not None for entry in checked):
        raise nothing_checked(asked.called, checked)
    return Report(tuple(checked))


def check(
    piece: Any,
    types: Sequence[Any] | None = None,
    *,
    lift: Callable[..., Any] | None = None,
    values: Any = None,
    observe: Callable[[Any], Any] | None = None,
    laws: str | Sequence[str] | None = None,
    name: str | None = None,
    known: Sequence[KnownFailing] = (),
    examples: int = 50,
    seed: int = 0,
) -> Callable[..., None]:
    """Make a parametrised test of pytest: `test_mine = tp.laws.check(MyMonoid)` is one test a law.

    The tests are called by piece and law, such as `test_mine[MyMonoid-associativity]`. A law that does not apply is
    skipped with the reason.

    Args:
      piece: as in `assert_lawful`, and so are all other arguments.
      types: of elements or operands.
      lift: for a monoid: cells of one element -> state.
      values: states or operands.
      observe: for a monoid: state -> what counts of it.
      laws: names or families of laws.
      name: what messages, and the tests, call the piece.
      known: laws that are known to fail; their tests are expected failures.
      examples: arguments drawn for every law.
      seed: of the draws.

    Returns:
      A function that pytest collects; bind it to a name that starts with `test`, in a module or in a class.

    Raises:
      LawError: when called inside of a running test, where the tests that it makes would never run; when an option
        cannot be used.
    """
    import pytest  # here, since all else of the laws works without it

    asked = Asked.of(piece, types=types, lift=lift, values=values, observe=observe, laws=laws, name=name, known=known)
    running = os.environ.get("PYTEST_CURRENT_TEST")
    if running is not None:
        raise LawError(
            message(
                f"laws.check(`{asked.called}`) makes tests, and was called inside of one.",
                f"running {running}",
                remedy="Use tp.laws.assert_lawful inside of a test; call check at the top of a module.",
            )
        )
    how = Search(examples, seed)
    chosen = {law.name: law for law in asked.selected}
    # Made by the first test and shared by the others, so that what they compile is compiled once.
    subjects = functools.cache(asked.subjects)

    @pytest.mark.parametrize("law", list(chosen), ids=[f"{asked.called}-{name}" for name in _short(asked.selected)])
    def test_law(law: str) -> None:
        known = [entry for entry in asked.known if entry.law == law]
        checked = list(outcomes([chosen[law]], subjects(), how, known))
        for entry in checked:
            if entry.error is not None:
                raise entry.error
            if entry.known is not None:
                pytest.xfail(entry.known)
        if all(entry.why_not is not None for entry in checked):
            pytest.skip(f"not checked: {checked[0].why_not if checked else 'nothing here has this law'}")

    # In the body of a class a plain function would be given the instance for the law.
    return staticmethod(test_law)


def _short(laws: Sequence[Law]) -> list[str]:
    """Names within the family; full ones where two families have a law of that name."""
    counts = collections.Counter(law.short for law in laws)
    return [law.short if counts[law.short] == 1 else law.name for law in laws]


def replay(token: str, piece: Any, types: Sequence[Any] | None = None, **options: Any) -> None:
    """Run a counterexample again.

    Args:
      token: from the message of a `LawError`.
      piece: the piece that it was about, changed or not.
      types: as it was checked with.
      options: `lift`, `values`, `observe` and `name`, as it was checked with.

    Raises:
      LawError: when the law still fails on these arguments.
      TokenError: when the token is none, was edited, or belongs to something else. A token is data: nothing in it is
        imported or called.
    """
    law_name, kinds, recipe = unpack(token)
    asked = Asked.of(given(piece, **options), types=types)
    law = next((law for law in catalogue if law.name == law_name), None)
    for subject in asked.subjects() if law is not None else ():
        if law is not None and law.family in subject.families and subject.types == kinds and not law.applies(subject):
            check_recipe(law, subject, recipe)
            verdict = judge(law, subject, recipe)
            if not verdict.holds:
                raise law_error(Failure(law, subject, recipe, verdict, 0)) from verdict.error
            return
    raise TokenError(
        message(
            f"the token does not belong to `{asked.called}`.",
            f"it is about {law_name} at {kinds}",
            remedy="Pass the piece and the options that the law was checked with.",
        )
    )
