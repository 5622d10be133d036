"""A piece together with how to check it: what modules offer to the command line, and what a piece can carry itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

from combinators.errors import first_line, message
from laws.errors import LawError

OPTIONS = ("types", "lift", "values", "observe", "laws", "name", "known")


@final
@dataclass(frozen=True)
class Given:
    """A piece with options for its check.

    Attributes:
      piece: what is checked.
      options: arguments of `assert_lawful`, by name.
    """

    piece: Any
    options: tuple[tuple[str, Any], ...]


def given(piece: Any, **options: Any) -> Given:
    """Put a piece and the options of its check into one value.

    `check`, `assert_lawful`, `examine`, `replay` and `tapestry laws` take it for the piece. A piece of a class of one's
    own can carry the same options in an attribute `__laws__`, a dictionary.

    Args:
      piece: a monoid, an aggregator, an arrow, ...
      options: `types`, `lift`, `values`, `observe`, `laws`, `name`, `known`, as in `assert_lawful`.

    Returns:
      The piece with its options.

    Raises:
      LawError: when an option is unknown.

    Example:
      >>> import tapestry_jax as tp
      >>> last = given(tp.Monoid(0.0, lambda a, b: b, name="Last"), laws="associativity")
      >>> tp.laws.assert_lawful(last, examples=5).held
      ('monoid.associativity',)
    """
    return Given(piece, tuple(_known(piece, options).items()))


def resolve(piece: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Find the piece and its options: those that are passed come first, then those that are given with it.

    A class, such as an aggregator's, stands for what it makes without arguments.

    Raises:
      LawError: when an option is unknown, or a class needs arguments.
    """
    found = {name: value for name, value in options.items() if value is not None and not _is_empty(value)}
    if isinstance(piece, Given):
        return resolve(piece.piece, dict(piece.options) | found)
    carried = getattr(piece, "__laws__", None)
    if isinstance(carried, Mapping):
        found = _known(piece, cast("Mapping[str, Any]", carried)) | found
    return (_made(piece) if isinstance(piece, type) else piece), found


def _made(piece: type) -> Any:
    try:
        return piece()
    except TypeError as error:
        raise LawError(
            message(
                f"laws of `{piece.__name__}`: it is a class, and cannot be made without arguments.",
                first_line(error),
                remedy=f"Pass a piece that is made: {piece.__name__}(...).",
            )
        ) from error


def _is_empty(value: Any) -> bool:
    """Whether nothing was passed; an array is something."""
    return isinstance(value, tuple) and not value


def _known(piece: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        called = getattr(piece, "__name__", type(piece).__name__)
        raise LawError(
            message(
                f"laws of `{called}`: there is no option {', '.join(unknown)}.",
                f"the options are {', '.join(OPTIONS)}",
                remedy="Use one of these.",
            )
        )
    return dict(options)
