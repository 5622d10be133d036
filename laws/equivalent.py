"""Planned is unplanned: the check that every plan has to pass, at little cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from combinators.arguments import read_flag, read_list, read_optional_name
from combinators.errors import message, spelt
from laws.catalogue import catalogue
from laws.counterexamples.message import law_error
from laws.counterexamples.search import Failure, judge
from laws.errors import LawError, whole_number
from laws.law import Law
from laws.pieces import Asked, is_plan
from laws.subjects.plan import PlanSubject
from laws.verdicts.outcome import Checked, Report

EQUIVALENCE = ("plan.blocks", "plan.values", "plan.gradients", "plan.nesting", "plan.retry")
"""What `assert_equivalent` checks; `assert_lawful` of a plan checks all its laws. First what needs no compiler."""

_ON_ALL = ("blocks", "values", "gradients", "streamed", "clustered")
"""Laws that are checked on integers, on normal numbers and on mixed magnitudes; the others on normal ones alone."""


def assert_equivalent(
    plan: Any, grads: bool = True, args: Sequence[Any] | None = None, seed: int = 0, *, name: str | None = None
) -> Report:
    """Check that planned is unplanned: block by block, values and gradients, nested in `jit`, and when run again.

    Both run on small integers, where they have to agree bit by bit wherever nothing is rounded, on normal numbers, and
    on numbers of mixed magnitude. Gradients are those of the product of all results with random cotangents, by every
    floating input; here the integers are such that the largest value of each input, and the smallest, comes several
    times along every axis.

    Args:
      plan: anything with a `graph` and `compile() -> run(*args)`.
      grads: compare gradients as well.
      args: the arguments of the program, to use instead of drawn ones; drawn integers are 0 to 3.
      seed: of the draws.
      name: what messages call the plan.

    Returns:
      A report, as of `assert_lawful`.

    Raises:
      LawError: with the arguments, and the first entry that differs by more than rounding; when every result was
        infinite or NaN; or when an option cannot be used.
    """
    grads = read_flag(grads, "grads= of laws.assert_equivalent", LawError)
    subject, seed = read_plan("laws.assert_equivalent", plan, args, seed, name)
    return checked_plan(subject, EQUIVALENCE, {} if grads else {"plan.gradients": "grads=False"}, seed)


def read_plan(
    who: str, plan: Any, args: Sequence[Any] | None, seed: Any, name: Any, engine: Any = None
) -> tuple[PlanSubject, int]:
    """What is checked, and the seed.

    Raises:
      LawError: for what is no plan, and options that cannot be used.
    """
    if not is_plan(plan):
        raise LawError(
            message(
                f"{who}: this is no plan.",
                f"got {type(plan).__name__}: {spelt(plan)}",
                remedy="Pass tp.plan(graph, mesh, entries).",
            )
        )
    seed = whole_number(f"{who}: seed", seed, least=0)
    name = read_optional_name(name, f"name= of {who}", LawError)
    args = None if args is None else read_list(args, f"args= of {who}", LawError)
    asked = Asked(plan, name=name, values=None if args is None else [tuple(args)])
    return PlanSubject(plan, asked.called, asked.values, engine), seed


def checked_plan(subject: PlanSubject, laws: Sequence[str], left_out: Mapping[str, str], seed: int) -> Report:
    """Check some laws of a plan, each on a few arguments.

    Args:
      subject: the plan.
      laws: names, in order.
      left_out: names of those that are not checked, and why.
      seed: of the draws.

    Raises:
      LawError: with the first counterexample, or where every result was infinite or NaN.
    """
    checked: list[Checked] = []
    for law in (law for name in laws for law in catalogue if law.name == name):
        why_not = left_out.get(law.name) or law.applies(subject)
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


def _plan_recipes(law: Law, subject: PlanSubject, seed: int) -> list[list[Any]]:
    if subject.values is not None:
        [given] = subject.drawn.recipes
        return [[given, [domain, seed]][: len(law.takes)] for domain in ("nonzero", "normal")][: len(law.takes)]
    # In less than float32 parameters of size 1 tell nothing: a model that they saturate has gradients that are noise.
    last = "small" if subject.is_coarse else "scaled"
    first = subject.first(law, seed)
    drawn = [*([] if first else [["integers", seed]]), ["normal", seed], [last, seed + 1]]
    chosen = drawn if law.short in _ON_ALL else [["normal", seed]]
    return [*first, *([part] * len(law.takes) for part in chosen)]


def _check_finite(subject: PlanSubject, seed: int) -> None:
    """Refuse to have compared nothing but infinities and NaN."""
    recipe = subject.drawn.recipes[0] if subject.values is not None else ["normal", seed]
    results = subject.at_once(subject.build("arguments", recipe))
    sizes = [np.size(leaf) for leaf in results]
    if any(sizes) and not any(np.any(np.isfinite(np.asarray(leaf, np.complex128))) for leaf in results):
        raise LawError(
            message(
                f"`{subject.name}` was compared on arguments without one finite result.",
                remedy="Pass args= that the program is meant for.",
            )
        )
