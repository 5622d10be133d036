"""What cannot be traced, since it asks for the numbers of an array: told by the line that the user wrote."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import jax

from combinators.errors import GraphError, message
from tapestry_jax.lifting.callables.place import place_of_error

_BEFORE = "what the call is told by a flag or a number is said before: functools.partial(function, training=False)"
_ASKED: tuple[tuple[type[Exception], str, str], ...] = (
    (jax.errors.TracerBoolConversionError, "whether it is true", f"Choose with jnp.where or jax.lax.cond; {_BEFORE}."),
    (jax.errors.TracerArrayConversionError, "as an array of NumPy", "Write jax.numpy in the place of NumPy."),
    (
        jax.errors.TracerIntegerConversionError,
        "as a whole number of Python",
        f"Count with jax.lax.fori_loop; {_BEFORE}.",
    ),
    (
        jax.errors.NonConcreteBooleanIndexError,
        "to know how many cells a mask leaves",
        "Keep the shape: jnp.where(mask, x, 0) in the place of x[mask].",
    ),
    (
        jax.errors.ConcretizationTypeError,
        "while it is traced",
        f"Results have shapes that follow from shapes alone: pass size=, or use jnp.where; {_BEFORE}.",
    ),
)
"""Of each error of JAX what was asked for, and what to write; the first that fits."""


@contextmanager
def numbers_told(name: str, labels: Sequence[str]) -> Generator[None]:
    """Say in our words where a function that is traced asks for numbers.

    Args:
      name: of the function.
      labels: of its arrays, in their order.

    Raises:
      GraphError: with the line, the arrays that the numbers depend on, and what to write in its place.
    """
    try:
        yield
    except tuple(kind for kind, _, _ in _ASKED) as error:
        how, remedy = next((how, remedy) for kind, how, remedy in _ASKED if isinstance(error, kind))
        place, needed = place_of_error(error), _needed(str(error), labels)
        details = ([f"written at {place}"] if place else []) + ([f"they depend on {needed}"] if needed else [])
        headline = f"`{name}` cannot be traced: it asks for the numbers of an array, {how}"
        raise GraphError(message(headline, *details, remedy=remedy)) from error


def _needed(text: str, labels: Sequence[str]) -> str:
    """The arrays that JAX names by their places."""
    found = [int(place) for place in re.findall(r"\b(?:words|leaves)\[(\d+)\]", text)]
    return ", ".join(f"`{labels[place]}`" for place in dict.fromkeys(found) if place < len(labels))
