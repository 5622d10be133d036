"""Whether what a monoid does is up to code that is not of this library."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, cast

from combinators.kernels.reachable import holds_own_code, reached
from combinators.merging.leafwise import is_lawful
from combinators.merging.monoid import Monoid

# As monoids, and what makes one of another, name the functions by which they merge.
_COMBINES = ("combine", "combines", "function", "summary", "at", "express", "restore")


def is_foreign(monoid: Monoid) -> bool:
    """Whether a monoid merges by code that is not of this library, somewhere inside: a user's, or JAX's own.

    Laws hold the monoids of this library; those that it makes of others do what these do. What merges by a program that
    was taken from a user's function, and holds none of its code, says so: `is_of_others`.
    """
    # Here, not at the top: few programs ask, and a library that is imported need not load it.
    from combinators.claims.provenance import holds_code

    return any(
        getattr(each, "is_of_others", False) or (not is_lawful(each) and holds_code(each)[0])
        for each in _merging(monoid)
    )


def merges_inside(kernel: Any) -> bool:
    """Whether a kernel merges by itself with a monoid of others, or takes back by their inverse, as windows do."""
    found = (each.value for each in reached(kernel, "kernel").reads)
    return any(isinstance(each, Monoid) and (is_foreign(each) or holds_own_code(each.inverse)) for each in found)


def _merging(value: Any, name: str = "monoid") -> Iterator[Any]:
    """What merges inside of something: the functions that it holds as `combine`, and frames."""
    if isinstance(value, (tuple, list)):
        for part in cast("Sequence[Any]", value):
            yield from _merging(part, name)
        return
    if name in _COMBINES and callable(value):
        yield value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name == "inverse":  # takes back, and merges nothing
                continue
            yield from _merging(getattr(value, field.name), field.name)
