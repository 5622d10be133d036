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
