"""Whether what a monoid does is up to code that is not of this library."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from combinators.merging.leafwise import is_lawful
from combinators.merging.monoid import Monoid


def is_foreign(monoid: Monoid) -> bool:
    """Whether a monoid merges by code that is not of this library, somewhere inside: a user's, or JAX's own.

    Laws hold the monoids of this library; those that it makes of others do what these do.
    """
    # Here, not at the top: few programs ask, and a library that is imported need not load it.
    from combinators.declared.boxed import holds_code

    return any(
        (not is_lawful(each.combine) and holds_code(each.combine)[0])
        or (each.frame is not None and holds_code(each.frame)[0])
        for each in _inside(monoid)
    )


def _inside(value: Any) -> Iterator[Monoid]:
    """The monoids that something is made of, itself included."""
    if isinstance(value, Monoid):
        yield value
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _inside(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _inside(getattr(value, field.name))
