"""All laws, by family, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from combinators.errors import message
from laws.errors import LawError
from laws.families import (
    aggregator,
    arrow,
    choice,
    connected,
    declared,
    feedback,
    framed,
    monoid,
    plan,
    reduce,
    running,
    scan,
)
from laws.families import map as maps
from laws.law import Law

catalogue: tuple[Law, ...] = (
    *monoid.LAWS,
    *running.LAWS,
    *declared.LAWS,
    *framed.LAWS,
    *connected.LAWS,
    *aggregator.LAWS,
    *maps.LAWS,
    *reduce.LAWS,
    *scan.LAWS,
    *arrow.LAWS,
    *choice.LAWS,
    *feedback.LAWS,
    *plan.LAWS,
)
"""Every law that the library knows. `law.name` is unique; `law.family` says what it is a law of."""

every_family: tuple[str, ...] = tuple(dict.fromkeys(law.family for law in catalogue))
"""What laws are laws of, in the order of the catalogue."""


def select(families: Iterable[str], names: str | Sequence[str] | None, *remarks: str) -> tuple[Law, ...]:
    """The laws of some families, or those of them that are named.

    Args:
      families: such as `("monoid",)`.
      names: full names, families, or names within a family; None for all.
      remarks: further lines for the error.

    Raises:
      LawError: when a name names no law of the families.
    """
    listed = set(families)
    known = [law for law in catalogue if law.family in listed]
    if names is None:
        return tuple(known)
    asked = (names,) if isinstance(names, str) else tuple(names)
    unknown = [name for name in asked if not any(_is_named(law, name) for law in known)]
    if unknown or not asked:
        raise LawError(
            message(
                f"no law is called {', '.join(map(repr, unknown)) or 'nothing'}.",
                *remarks,
                f"the laws here are {', '.join(law.name for law in known)}",
                remedy="Use one of these names, or a family such as 'monoid'.",
            )
        )
    return tuple(law for law in known if any(_is_named(law, name) for name in asked))


def _is_named(law: Law, name: str) -> bool:
    return name in (law.name, law.short, law.family)
