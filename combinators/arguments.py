"""Reading arguments: numbers and names of Python and NumPy alike; anything else is told in one way.

What is accepted must mean something: a flag is True or False, so that `causal="no"` is not a yes, and a count is a
whole number, so that 2.7 devices are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from combinators.errors import GraphError, TapestryError, message, spelt

Error = type[TapestryError]


def read_flag(value: Any, what: str, error: Error = GraphError) -> bool:
    """True or False, of Python or of NumPy.

    Raises:
      TapestryError: of the class `error`, when `value` is neither.
    """
    if is_flag(value):
        return bool(value)
    _refuse(what, "True or False", value, error, "Write True or False.")


def read_name(value: Any, what: str, error: Error = GraphError) -> str:
    """A text that is not empty.

    Raises:
      TapestryError: of the class `error`, when `value` is none.
    """
    if isinstance(value, str) and value and is_storable(value):
        return str(value)
    _refuse(what, "a name, as text", value, error, "Write it in quotes, such as 'batch'.")


def read_optional_name(value: Any, what: str, error: Error = GraphError) -> str | None:
    """A text, or None for what is left to the library: an empty one as well.

    Raises:
      TapestryError: of the class `error`, when `value` is neither.
    """
    if value is None or (isinstance(value, str) and not value):
        return None
    return read_name(value, what, error)


def read_dimension(value: Any, what: str, error: Error = GraphError) -> str:
    """The name of a dimension: an identifier.

    Raises:
      TapestryError: of the class `error`, when `value` is none.
    """
    if isinstance(value, str) and value.isidentifier():
        return str(value)
    _refuse(what, "the name of a dimension", value, error, "Write letters, digits and _ in quotes, such as 'batch'.")


def read_count(value: Any, what: str, least: int = 1, error: Error = GraphError) -> int:
    """A whole number, of Python or of NumPy, that is at least `least`.

    Raises:
      TapestryError: of the class `error`, when `value` is none.
    """
    if is_whole(value) and value >= least:
        return int(value)
    _refuse(
        what, f"a whole number, at least {least}", value, error, f"Write {least} or more, without quotes or a point."
    )


def read_integer(value: Any, what: str, error: Error = GraphError) -> int:
    """Any whole number, of Python or of NumPy.

    Raises:
      TapestryError: of the class `error`, when `value` is none.
    """
    if is_whole(value):
        return int(value)
    _refuse(what, "a whole number", value, error, "Write it without quotes or a point, such as 3.")


def read_number(value: Any, what: str, error: Error = GraphError) -> float:
    """A finite real number, of Python or of NumPy.

    Raises:
      TapestryError: of the class `error`, when `value` is none.
    """
    if is_real(value) and math.isfinite(value):
        return float(value)
    _refuse(what, "a finite number", value, error, "Write it without quotes, such as 0.5.")


def read_function(value: Any, what: str, error: Error = GraphError) -> Any:
    """Anything that can be called.

    Raises:
      TapestryError: of the class `error`, when `value` cannot.
    """
    if callable(value):
        return value
    _refuse(what, "a function", value, error, "Pass what can be called, such as jnp.add.")


def read_mapping(value: Any, what: str, error: Error = GraphError) -> dict[Any, Any]:
    """A mapping, as a dictionary; empty for None.

    Raises:
      TapestryError: of the class `error`, when `value` is none.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    _refuse(what, "a mapping", value, error, 'Write it in braces, such as {"batch": 8}.')


def read_list(value: Any, what: str, error: Error = GraphError, *, or_one: str = "") -> tuple[Any, ...]:
    """A tuple or a list, as a tuple.

    Args:
      value: what was given.
      what: how errors call it.
      error: the class of what is raised.
      or_one: what may stand there without brackets, such as `a string`; the caller has looked for it.

    Raises:
      TapestryError: of the class `error`, when `value` is neither.
    """
    if isinstance(value, tuple | list):
        return tuple(cast("Sequence[Any]", value))
    if or_one:
        _refuse(what, f"{or_one}, or a list of them", value, error, "Write one of them, or several in brackets.")
    _refuse(what, "a tuple or a list", value, error, "Write it in brackets.")


def is_storable(name: str) -> bool:
    """Whether UTF-8 holds a name: surrogates, which stand for half a character, can be neither printed nor stored."""
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def is_flag(value: Any) -> bool:
    """Whether a value is True or False, of Python or of NumPy."""
    return isinstance(value, bool | np.bool_)


def is_whole(value: Any) -> bool:
    """Whether a value is an integer of Python or of NumPy; a bool is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether a value is a real number of Python or of NumPy; a bool is none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _refuse(what: str, expected: str, value: Any, error: Error, remedy: str) -> NoReturn:
    got = f"got {type(value).__name__}: {spelt(value)}"
    raise error(message(f"{what} is not what it should be", f"expected {expected}", got, remedy=remedy))
