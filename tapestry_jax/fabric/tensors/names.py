"""Names of tensors and snapshots. They never become paths or SQL; what they may hold keeps them readable in both."""

from __future__ import annotations

import unicodedata
from typing import Any

from combinators.errors import message, spelt
from tapestry_jax.fabric.errors import FabricError

LONGEST = 200
"""Characters of a name."""
RESERVED = "tapestry"
"""What no name begins with: it is kept for tensors of the fabric's own."""
_SIGNS = "_-."
_REMEDY = "Write letters, digits, `_`, `-` and `.`, with `/` between parts, such as 'decoder/0/kernel'."


def read_tensor_name(name: Any, what: str = "a tensor") -> str:
    """The name, where it can be one.

    Raises:
      FabricError: for what is no text, empty, too long, reserved, or has other characters than names have.
    """
    why = _objection(name)
    if why is not None:
        shown = f"{type(name).__name__}: {spelt(name)}"
        raise FabricError(message(f"{what} cannot have this name: {why}", f"got {shown}", remedy=_REMEDY))
    return str(name)


def _objection(name: Any) -> str | None:
    if not isinstance(name, str):
        return "it is no text"
    if not name:
        return "it is empty"
    if len(name) > LONGEST:
        return f"it has {len(name):,} characters, and at most {LONGEST} are read"
    wrong = next((sign for sign in name if not _may_stand(sign)), None)
    if wrong is not None:
        return f"it has the character {wrong!r}"
    # Two spellings of one word would be two tensors that nobody can tell apart.
    if unicodedata.normalize("NFC", name) != name:
        return "its accents are characters of their own, expected the normal form NFC"
    parts = name.split("/")
    if not all(part[:1].isalnum() or part[:1] == "_" for part in parts):
        return "each part begins with a letter, a digit or `_`"
    return f"`{RESERVED}` is kept for the fabric itself" if parts[0] == RESERVED else None


def _may_stand(sign: str) -> bool:
    # Letters, marks on them, and numbers: no spaces, quotes, controls, signs that turn the direction, or surrogates.
    return sign in _SIGNS or sign == "/" or unicodedata.category(sign)[0] in "LMN"
