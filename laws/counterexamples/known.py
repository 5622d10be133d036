"""Failures that are known: declared with a reason, and checked to be failures still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, final

from combinators.errors import message, spelt
from laws.counterexamples.search import Failure, Search, judge, search
from laws.counterexamples.tokens import check_recipe, unpack
from laws.errors import LawError
from laws.law import Law
from laws.subject import Subject


@final
@dataclass(frozen=True)
class KnownFailing:
    """A law that a piece is known to break.

    Attributes:
      law: its full name.
      reason: why this is accepted.
      counterexample: a replay token; None to search for one.
    """

    law: str
    reason: str
    counterexample: str | None = None


def known_failing(law: str, reason: str, counterexample: str | None = None) -> KnownFailing:
    """Declare that a piece breaks a law, and that this is accepted.

    The declaration is strict: the counterexample is run again, or one is searched for, and the check fails as soon as
    the law holds, so that no declaration outlives its cause.

    Args:
      law: the full name of the law, such as `"monoid.identity_range"`.
      reason: why it is accepted; reports show it.
      counterexample: the token of a failure's message; without it a counterexample is searched for every time.

    Returns:
      What `check`, `assert_lawful` and `examine` take in `known=[...]`.

    Raises:
      LawError: when the reason is empty, or the token is of another law.

    Example:
      >>> import tapestry_jax as tp
      >>> last = tp.Monoid(0.0, lambda a, b: b, name="Last")
      >>> known = known_failing("monoid.right_identity", "nothing tells an empty state from a 0")
      >>> tp.laws.assert_lawful(last, laws=["right_identity", "associativity"], known=[known]).known
      {'monoid.right_identity': 'nothing tells an empty state from a 0'}
    """
    if not isinstance(cast("Any", law), str) or not isinstance(cast("Any", reason), str):
        raise LawError(
            message(
                "known_failing: the law and the reason are text.",
                f"got {spelt(law, 60)} and {spelt(reason, 60)}",
                remedy="Pass the full name of a law, and why it may fail.",
            )
        )
    if not reason.strip():
        raise LawError(message(f"known_failing({law!r}): the reason is empty.", remedy="Say why the law may fail."))
    if counterexample is not None and unpack(counterexample)[0] != law:
        raise LawError(
            message(
                f"known_failing({law!r}): the counterexample is of another law.",
                f"it is about {unpack(counterexample)[0]}",
                remedy="Copy the token of the failure that is accepted.",
            )
        )
    return KnownFailing(law, reason, counterexample)


def confirm(known: KnownFailing, law: Law, subjects: Sequence[Subject], how: Search) -> Failure:
    """Find that a law fails still.

    Returns:
      The counterexample.

    Raises:
      LawError: when the law holds, or is not checked.
    """
    why_not, holds = list[str](), False
    for subject in subjects:
        if law.family not in subject.families:
            continue
        if (why := law.applies(subject)) is not None:
            why_not.append(why)
            continue
        outcome = _outcome(known, law, subject, how)
        if isinstance(outcome, Failure):
            return outcome
        holds = holds or outcome is None
        why_not += [] if outcome is None else [outcome]
    if not holds:
        raise LawError(
            message(
                f"{law.name} was declared as known to fail, and is not checked.",
                *(dict.fromkeys(why_not) or ["nothing here has this law"]),
                f"reason given: {known.reason}",
                remedy="Remove the known_failing, or check at types and with declarations where the law applies.",
            )
        )
    raise LawError(
        message(
            f"{law.name} was declared as known to fail, and does not fail.",
            f"reason given: {known.reason}",
            remedy="Remove the known_failing, or its counterexample if that is of another version.",
        )
    )


def _outcome(known: KnownFailing, law: Law, subject: Subject, how: Search) -> Failure | str | None:
    """The counterexample; None where the law holds; or why that is not known."""
    if known.counterexample is None:
        found = search(law, subject, how)
        if isinstance(found, Failure):
            return found
        return None if found else "no arguments could be drawn: the strategy yields nothing"
    _, kinds, recipe = unpack(known.counterexample)
    if subject.types != kinds:
        return f"the counterexample is at {kinds}, and the law is checked at {subject.types}"
    check_recipe(law, subject, recipe)
    verdict = judge(law, subject, recipe)
    return None if verdict.holds else Failure(law, subject, recipe, verdict, how.seed)
