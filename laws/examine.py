"""Checking every law of a piece, to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from combinators.errors import message
from laws.counterexamples.known import KnownFailing, confirm
from laws.counterexamples.message import law_error
from laws.counterexamples.search import Failure, Search, search
from laws.errors import LawError
from laws.law import Law
from laws.pieces import Asked
from laws.subject import Subject
from laws.verdicts.outcome import Checked, Report


def examine(
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
    """Check the laws of a piece and report on all of them; `assert_lawful` stops at the first that fails.

    Args:
      piece: as in `assert_lawful`, and so are all other arguments.
      types: of elements or operands.
      lift: for a monoid: cells of one element -> state.
      values: elements, states or operands.
      observe: for a monoid: state -> what counts of it.
      laws: names or families of laws.
      name: what messages call the piece.
      known: laws that are known to fail.
      examples: arguments drawn for every law.
      seed: of the draws.
      shrink: look for the smallest counterexamples.

    Returns:
      A report with every law: held, failed, failing as known, or not checked, and why.

    Raises:
      LawError: when it is not known how to check the piece, or a known failure does not fail.

    Example:
      >>> import tapestry_jax as tp
      >>> report = examine(tp.Monoid(0.0, lambda a, b: b, name="Last"), laws=["associativity", "right_identity"])
      >>> report.held, list(report.failed)
      (('monoid.associativity',), ['monoid.right_identity'])
    """
    asked = Asked.of(piece, types=types, lift=lift, values=values, observe=observe, laws=laws, name=name, known=known)
    return Report(tuple(outcomes(asked.selected, asked.subjects(), Search(examples, seed, shrink), asked.known)))


def examine_named(piece: Any, names: Sequence[str] | None, *, examples: int, seed: int) -> Report:
    """`examine` for one question to many pieces: a law that is none of this piece's is not checked.

    Args:
      piece: as in `examine`.
      names: of laws and families, of whatever piece; None for all laws of this one.
      examples: arguments drawn for every law.
      seed: of the draws.

    Returns:
      A report as that of `examine`, with a line for every name of which this piece has nothing.

    Raises:
      LawError: when a name is no law's at all, or it is not known how to check the piece.
    """
    if names is None:
        return examine(piece, examples=examples, seed=seed)
    asked = Asked.of(piece)
    own, others = asked.divided(names)
    report = examine(piece, laws=own, examples=examples, seed=seed) if own else Report(())
    return Report(
        (*report.checked, *(Checked(name, asked.called, 0, f"no law of `{asked.called}`") for name in others))
    )


def outcomes(
    laws: Sequence[Law], subjects: Sequence[Subject], how: Search, known: Sequence[KnownFailing] = ()
) -> Iterator[Checked]:
    """Check laws one after the other.

    Raises:
      LawError: when a known failure does not fail, or is of no law that was asked for.
    """
    declared = {entry.law: entry for entry in known}
    _refuse_unknown(declared, laws)
    for law in laws:
        if law.name in declared:
            failure = confirm(declared[law.name], law, subjects, how)
            yield Checked(law.name, failure.subject.name, 1, known=declared[law.name].reason)
            continue
        for subject in subjects:
            if law.family in subject.families:
                yield _outcome(law, subject, how)


def nothing_checked(called: str, checked: Sequence[Checked]) -> LawError:
    """The error of a question that no law could answer."""
    return LawError(
        message(
            f"no law of `{called}` could be checked.",
            *(f"{entry.law}: {entry.why_not}" for entry in checked[:8]),
            remedy="Ask for laws that apply, or at types where they do.",
        )
    )


def _outcome(law: Law, subject: Subject, how: Search) -> Checked:
    why_not = law.applies(subject)
    if why_not is not None:
        return Checked(law.name, subject.name, 0, why_not)
    found = search(law, subject, how)
    if isinstance(found, Failure):
        error = law_error(found)
        error.__cause__ = found.verdict.error
        return Checked(law.name, subject.name, 0, error=error)
    if not found:
        return Checked(law.name, subject.name, 0, "no arguments could be drawn: the strategy yields nothing")
    return Checked(law.name, subject.name, found)


def _refuse_unknown(declared: dict[str, KnownFailing], laws: Sequence[Law]) -> None:
    known = {law.name for law in laws}
    wrong = [name for name in declared if name not in known]
    if wrong:
        raise LawError(
            message(
                f"known_failing names {', '.join(map(repr, wrong))}, which is not checked here.",
                remedy="Use the full name of a law that is asked for.",
            )
        )
