"""Replay tokens: a law, types and arguments as text. A token is data: nothing in it is imported or called."""

from __future__ import annotations

import base64
import json
from typing import Any

from combinators.errors import FormatError, first_line, message, spelt
from combinators.stored.json import read_json
from laws.errors import LawError, TokenError
from laws.law import Law
from laws.subject import Subject

LONGEST_TOKEN = 2**20
"""Characters of a replay token; what is drawn takes a few hundred."""


def pack(law: str, types: str, recipe: list[Any]) -> str:
    """A replay token: the law, the types and the arguments as text."""
    return base64.urlsafe_b64encode(json.dumps([law, types, recipe]).encode()).decode()


def unpack(token: str) -> tuple[str, str, list[Any]]:
    """Read a replay token.

    Raises:
      TokenError: when it is none.
    """
    try:
        if len(token) > LONGEST_TOKEN:
            raise ValueError(f"{len(token)} characters")
        found = read_json(base64.urlsafe_b64decode(token.encode()).decode(), "the token", any_number=True)
    except (ValueError, TypeError, AttributeError, FormatError) as error:
        raise _no_token(token) from error
    match found:
        case [str() as law, str() as types, list() as recipe]:
            return law, types, recipe
        case _:
            raise _no_token(token)


def check_recipe(law: Law, subject: Subject, recipe: list[Any]) -> None:
    """Refuse arguments from a token that are none of a law: run, they would look like a piece that raises.

    Raises:
      TokenError: when they are too few or too many, or one cannot be read.
      LawError: when it stands for values that are not given here.
    """
    problem = None
    if len(recipe) != len(law.takes):
        problem = f"{law.name} takes {len(law.takes)} arguments, and the token has {len(recipe)}"
    for (name, kind), part in zip(law.takes, recipe, strict=False):
        try:
            subject.read(kind, part)
            subject.show(kind, part)
        except LawError:
            raise
        except Exception as error:  # noqa: BLE001 - what was stored may be anything
            problem = problem or f"{name}: {spelt(part, 60)} is no {kind}: {first_line(error)}"
    if problem is not None:
        raise TokenError(
            message(
                f"laws.replay: the token holds no arguments of {law.name} for `{subject.name}`.",
                problem,
                remedy="Copy the whole token of a failure of this version of the piece and of the library.",
            )
        )


def _no_token(token: Any) -> TokenError:
    return TokenError(
        message("laws.replay: this is no replay token.", f"got {spelt(token)}", remedy="Copy the whole token.")
    )
