"""The words of a signature: names, numbers and symbols, each with its place in the text."""

from __future__ import annotations

import unicodedata
from typing import NoReturn

from combinators.errors import SignatureError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Span

MAX_DIGITS = 300  # below every limit that Python can be set to for reading and printing integers
_SYMBOLS = ("->", "...", ",", "(", ")", "[", "]", "+", "-", "*", "@")
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True)
class Token:
    """One word.

    Attributes:
      kind: `name`, `number`, `end`, or the symbol itself.
      text: as it is read.
      span: its place.
    """

    kind: str
    text: str
    span: Span


def tokenize(text: str) -> list[Token]:
    """All words, and one for the end.

    Raises:
      SignatureError: at a character that no signature has, or a number that is too long.
    """
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        token = _token(text, at)
        tokens.append(token)
        at = token.span[1]
    # Where the text ends early the caret stands right after what was last read.
    end = len(text.rstrip())
    tokens.append(Token("end", "", (end, end)))
    return tokens


def _token(text: str, start: int) -> Token:
    end = start
    if text.startswith("...", start) and text[start + 3 : start + 4] in _DIGITS:
        end = _skip_digits(text, start + 3)
        if text[start + 3] == "0" and end > start + 4:
            refuse(
                text, (start, end), f"got `{text[start:end]}`", "Write the number after `...` without leading zeros."
            )
        return Token("name", text[start:end], (start, end))
    if text[start] in _DIGITS:
        end = _skip_digits(text, start)
        if end - start > MAX_DIGITS:
            refuse(text, (start, start + 1), f"a number of {end - start} digits", f"Use at most {MAX_DIGITS} digits.")
        return Token("number", text[start:end], (start, end))
    for symbol in _SYMBOLS:
        if text.startswith(symbol, start):
            return Token(symbol, symbol, (start, start + len(symbol)))
    if not text[start].isidentifier():
        remedy = "Use names, numbers, spaces and `-> , ( ) [ ] + - * @ ... 1` alone."
        refuse(text, (start, start + 1), f"got {text[start]!a}, which no signature has", remedy)
    while end < len(text) and ("_" + text[end]).isidentifier():
        end += 1
    # Python reads identifiers in this normal form, so that a keyword argument names the same dimension.
    name = unicodedata.normalize("NFKC", text[start:end])
    return Token("name", name, (start, end))


def _skip_digits(text: str, at: int) -> int:
    while at < len(text) and text[at] in _DIGITS:
        at += 1
    return at


def described(token: Token) -> str:
    """How an error names a word."""
    return "the end" if token.kind == "end" else f"`{token.text if len(token.text) <= 40 else token.text[:40] + '...'}`"


def refuse(text: str, span: Span, problem: str, remedy: str) -> NoReturn:
    """Raise the error that points at a place of a signature."""
    raise SignatureError(message("cannot read the signature.", underline(text, span), problem, remedy=remedy))


def underline(text: str, *spans: Span) -> str:
    """Put carets under spans of a text, cropped around the first where the text is long.

    Args:
      text: any text; what cannot be printed on one line is shown as a space.
      spans: half-open ranges of characters; an empty one gets one caret.

    Returns:
      Two lines.
    """
    width = 96
    first = min((start for start, _ in spans), default=0)
    low = 0 if len(text) <= width else max(0, min(first - width // 2, len(text) - width))
    shown = "".join(char if char.isprintable() else " " for char in text[low : low + width])
    marks = {at - low for start, end in spans for at in range(start, max(end, start + 1))}
    carets = "".join("^" if at in marks else " " for at in range(len(shown) + 1)).rstrip()
    return f"{shown.rstrip()}\n{carets}"
