"""The error of a law that does not hold."""

from __future__ import annotations

from combinators.errors import TapestryError


class LawError(TapestryError):
    """A law that does not hold, or a question about laws that has no answer.

    Attributes:
      law: the name of the broken law, such as `monoid.associativity`; None where no law was broken.
      token: what `laws.replay` takes to run the counterexample again; None without a counterexample.
    """

    def __init__(self, text: str, *, law: str | None = None, token: str | None = None) -> None:
        super().__init__(text)
        self.law, self.token = law, token


def first_line(error: BaseException) -> str:
    """What was raised, on one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
