"""The options of a check, looked at where they come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from combinators.errors import message, spelt
from laws.counterexamples.known import KnownFailing
from laws.draws.listed import as_listed
from laws.errors import LawError


def checked_options(called: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, with values as a list or strategy, and what is known to fail as a tuple.

    Args:
      called: the name of the piece.
      options: of `assert_lawful`, by name; those that were not passed are not in it.

    Raises:
      LawError: when one is not what `assert_lawful` takes; all that are wrong are told at once.
    """
    found = dict(options)
    if "known" in found:
        found["known"] = (found["known"],) if isinstance(found["known"], KnownFailing) else found["known"]
    problems = [problem for name, value in found.items() if (problem := _problem(name, value)) is not None]
    if problems:
        raise LawError(
            message(f"laws of `{called}`: an option cannot be used.", *problems, remedy="Pass what is expected.")
        )
    if "known" in found:
        found["known"] = tuple(found["known"])
    if "values" in found:
        found["values"] = as_listed(called, found["values"])
    return found


def _problem(name: str, value: Any) -> str | None:
    got = f"got {type(value).__name__}: {spelt(value)}"
    match name:
        case "types" if not isinstance(value, list | tuple):
            return f"types: expected a list, one type for every input; {got}"
        case "types":
            wrong = [leaf for leaf in jax.tree.leaves(list(value)) if not _is_type(leaf)]
            expected = "tp.TensorType, jax.ShapeDtypeStruct or arrays"
            return f"types: expected {expected}; got {type(wrong[0]).__name__}: {spelt(wrong[0])}" if wrong else None
        case "lift" | "observe" if not callable(value):
            return f"{name}: expected a function; {got}"
        case "name" if not isinstance(value, str):
            return f"name: expected a string; {got}"
        case "laws" if not isinstance(value, str) and not _all(value, str):
            return f"laws: expected names or families of laws; {got}"
        case "known" if not _all(value, KnownFailing):
            return f"known: expected a list of laws.known_failing(law, reason); {got}"
        case _:
            return None


def _is_type(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex) or (
        hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, type)
    )


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, kind) for entry in value)
