"""The error of a law that does not hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from combinators.errors import FormatError, TapestryError, message, spelt


class LawError(TapestryError):
    """A law that does not hold, or a question about laws that has no answer.

    Attributes:
      law: the name of the broken law, such as `monoid.associativity`; None where no law was broken.
      token: what `laws.replay` takes to run the counterexample again; None without a counterexample.
    """

    def __init__(self, text: str, *, law: str | None = None, token: str | None = None) -> None:
        super().__init__(text)
        self.law, self.token = law, token


class TokenError(LawError, FormatError):
    """A replay token that is none, was edited, or belongs to something else."""


def whole_number(what: str, value: Any, least: int) -> int:
    """An argument that has to be an integer.

    Args:
      what: where it was passed, and its name.
      value: what was passed.
      least: the smallest that makes sense.

    Raises:
      LawError: when it is none, or less.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise LawError(
            message(
                f"{what} is no number to count with.",
                f"expected an integer, {least} or more",
                f"got      {spelt(value, 60)}",
                remedy=f"Pass an integer from {least} on.",
            )
        )
    return int(value)
