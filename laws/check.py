"""Checking laws: at once, as a test of pytest, or one counterexample again."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from combinators.errors import message
from laws.catalogue import catalogue
from laws.errors import LawError
from laws.law import Law
from laws.pieces import Asked
from laws.plan import PlanSubject
from laws.report import law_error, unpack
from laws.search import Failure, Search, judge, search
from laws.subject import Subject

EQUIVALENCE = ("plan.values", "plan.gradients", "plan.nesting", "plan.retry")
"""What `assert_equivalent` checks; `assert_lawful` of a plan checks all its laws."""


@final
@dataclass(frozen=True)
class Checked:
    """What came of one law on one subject.

    Attributes:
      law: its name.
      subject: name and types of what it was checked on.
      examples: how many arguments it held on; 0 where it was not checked.
      why_not: why it was not checked; None where it held.
    """

    law: str
    subject: str
    examples: int
    why_not: str | None = None

    def __str__(self) -> str:
        outcome = f"held ({self.examples} examples)" if self.why_not is None else f"not checked ({self.why_not})"
        return f"{self.law:<28} {outcome}"


@final
@dataclass(frozen=True)
class Report:
    """Every law that was asked for, held or not checked. A law that failed raised.

    Attributes:
      checked: one entry for each law and subject.
    """

    checked: tuple[Checked, ...]

    @property
    def held(self) -> tuple[str, ...]:
        """The names of the laws that were checked, and held."""
        return tuple(dict.fromkeys(entry.law for entry in self.checked if entry.why_not is None))

    @property
    def not_checked(self) -> dict[str, str]:
        """The names of the laws that were checked on no subject, and why."""
        held = set(self.held)
        reasons = {entry.law: entry.why_not for entry in self.checked if entry.law not in held}
        return {law: why for law, why in reasons.items() if why is not None}

    def __str__(self) -> str:
        return "\n".join(map(str, self.checked))


def assert_lawful(
    piece: Any,
    types: Sequence[Any] | None = None,
    *,
    lift: Callable[..., Any] | None = None,
    values: Any = None,
    observe: Callable[[Any], Any] | None = None,
    laws: str | Sequence[str] | None = None,
    name: str | None = None,
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
      values: for a monoid instead of `lift`: states, as a list or a hypothesis strategy. For an arrow or a plan: a list
        of operands to use instead of drawn ones.
      observe: for a monoid: state -> what counts of it; states are equal where this is. By default all of a state.
      laws: names or families of laws, such as `"associativity"` or `["map.split"]`; by default all that apply.
      name: what messages call the piece.
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
    asked = Asked(piece, types, lift, values, observe, laws, name)
    how = Search(examples, seed, shrink)
    checked = tuple(_checked(asked.selected, asked.subjects(), how))
    if all(entry.why_not is not None for entry in checked):
        raise LawError(
            message(
                f"no law of `{asked.called}` could be checked.",
                *(f"{entry.law}: {entry.why_not}" for entry in checked[:8]),
                remedy="Ask for laws that apply, or at types where they do.",
            )
        )
    return Report(checked)


def check(
    piece: Any,
    types: Sequence[Any] | None = None,
    *,
    lift: Callable[..., Any] | None = None,
    values: Any = None,
    observe: Callable[[Any], Any] | None = None,
    laws: str | Sequence[str] | None = None,
    name: str | None = None,
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
      examples: arguments drawn for every law.
      seed: of the draws.

    Returns:
      A function that pytest collects; bind it to a name that starts with `test`.

    Raises:
      LawError: when called inside of a running test, where the tests that it makes would never run.
    """
    import pytest

    asked = Asked(piece, types, lift, values, observe, laws, name)
    running = os.environ.get("PYTEST_CURRENT_TEST")
    if running is not None:
        raise LawError(
            message(
                f"laws.check(`{asked.called}`) makes tests, and was called inside of one.",
                f"running {running}",
                remedy="Use tp.laws.assert_lawful inside of a test; call check at the top of a module.",
            )
        )
    chosen = {law.name: law for law in asked.selected}
    # Made by the first test and shared by the others, so that what they compile is compiled once.
    subjects = functools.cache(asked.subjects)

    @pytest.mark.parametrize("law", list(chosen), ids=[f"{asked.called}-{law.short}" for law in chosen.values()])
    def test_law(law: str) -> None:
        checked = list(_checked([chosen[law]], subjects(), Search(examples, seed)))
        if all(entry.why_not is not None for entry in checked):
            pytest.skip(f"not checked: {checked[0].why_not if checked else 'nothing here has this law'}")

    return test_law


def assert_equivalent(
    plan: Any, grads: bool = True, args: Sequence[Any] | None = None, seed: int = 0, *, name: str | None = None
) -> Report:
    """Check that planned is unplanned: values and gradients, nested in `jit`, and when run again.

    Both run on small integers, where they have to agree bit by bit wherever nothing is rounded, on normal numbers, and
    on numbers of mixed magnitude. Gradients are those of the product of all results with random cotangents, by every
    floating input.

    Args:
      plan: anything with a `graph` and `compile() -> run(*args)`.
      grads: compare gradients as well.
      args: the arguments of the program, to use instead of drawn ones; drawn integers are 0 to 3.
      seed: of the draws.
      name: what messages call the plan.

    Returns:
      A report, as of `assert_lawful`.

    Raises:
      LawError: with the arguments, and the first entry that differs by more than rounding; or when every result was
        infinite or NaN.
    """
    asked = Asked(plan, name=name, values=None if args is None else [tuple(args)])
    subject = PlanSubject(plan, asked.called, asked.values)
    checked: list[Checked] = []
    for law in (law for law in catalogue if law.name in EQUIVALENCE):
        why_not = law.applies(subject) if grads or law.name != "plan.gradients" else "grads=False"
        if why_not is not None:
            checked.append(Checked(law.name, subject.name, 0, why_not))
            continue
        recipes = _plan_recipes(law, subject, seed)
        for recipe in recipes:
            verdict = judge(law, subject, recipe)
            if not verdict.holds:
                raise law_error(Failure(law, subject, recipe, verdict, seed)) from verdict.error
        checked.append(Checked(law.name, subject.name, len(recipes)))
    _check_finite(subject, seed)
    return Report(tuple(checked))


def replay(token: str, piece: Any, types: Sequence[Any] | None = None, **options: Any) -> None:
    """Run a counterexample again.

    Args:
      token: from the message of a `LawError`.
      piece: the piece that it was about, changed or not.
      types: as it was checked with.
      options: `lift`, `values`, `observe` and `name`, as it was checked with.

    Raises:
      LawError: when the law still fails on these arguments; or when the token belongs to something else.
    """
    law_name, kinds, recipe = unpack(token)
    asked = Asked(piece, types, **options)
    law = next((law for law in catalogue if law.name == law_name), None)
    for subject in asked.subjects() if law is not None else ():
        if law is not None and law.family in subject.families and subject.types == kinds:
            verdict = judge(law, subject, recipe)
            if not verdict.holds:
                raise law_error(Failure(law, subject, recipe, verdict, 0)) from verdict.error
            return
    raise LawError(
        message(
            f"the token does not belong to `{asked.called}`.",
            f"it is about {law_name} at {kinds}",
            remedy="Pass the piece and the options that the law was checked with.",
        )
    )


def _checked(laws: Sequence[Law], subjects: Sequence[Subject], how: Search) -> Iterator[Checked]:
    for law in laws:
        for subject in subjects:
            if law.family not in subject.families:
                continue
            why_not = law.applies(subject)
            if why_not is not None:
                yield Checked(law.name, subject.name, 0, why_not)
                continue
            outcome = search(law, subject, how)
            if isinstance(outcome, Failure):
                raise law_error(outcome) from outcome.verdict.error
            yield Checked(law.name, subject.name, outcome)


def _plan_recipes(law: Law, subject: PlanSubject, seed: int) -> list[list[Any]]:
    if subject.values is not None:
        return [[0, ["integers", seed]][: len(law.takes)], [0, ["normal", seed]][: len(law.takes)]][: len(law.takes)]
    drawn = [["integers", seed], ["normal", seed], ["scaled", seed + 1]]
    return [[part] * len(law.takes) for part in (drawn if law.short in ("values", "gradients") else drawn[1:2])]


def _check_finite(subject: PlanSubject, seed: int) -> None:
    """Refuse to have compared nothing but infinities and NaN."""
    recipe = 0 if subject.values is not None else ["normal", seed]
    results = subject.unplanned(subject.build("arguments", recipe))
    sizes = [np.size(leaf) for leaf in results]
    if any(sizes) and not any(np.any(np.isfinite(np.asarray(leaf, np.complex128))) for leaf in results):
        raise LawError(
            message(
                f"`{subject.name}` was compared on arguments without one finite result.",
                remedy="Pass args= that the program is meant for.",
            )
        )
