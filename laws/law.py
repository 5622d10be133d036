"""A law as a value: two sides that have to agree, and when they have to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

Judged = Literal["rounding", "range", "bits", "object"]
"""How two sides are compared: up to conditioned rounding; the same with infinities and NaN in play; bit by bit; as
Python objects."""


def always(subject: Any) -> str | None:
    """Apply to every subject of the family."""
    del subject
    return None


@final
@dataclass(frozen=True)
class Law:
    """An equation between two pure functions of a subject and drawn arguments.

    Args:
      name: family and law: `"monoid.associativity"`.
      formula: the equation, its two sides separated by ` ~ `; failures print them.
      source: where it comes from.
      function: (subject, *arguments) -> (left, right), pytrees of arrays; jitted. `(left,)` where there is an `oracle`.
      takes: name and kind of every argument; the subject knows how to draw each kind.
      applies: subject -> None, or why the law says nothing about it. A law that does not apply is never passed.
      judged: how the sides are compared.
      depth: operations on the longest path of one side; dimensionless.
      scaled_by: the side whose derivative says how much rounding is allowed, 0 or 1.
      oracle: (subject, *arguments) -> right, computed on the host in NumPy by code that is not ours.
      eager: run `function` as it is, since what it calls compiles itself.
      is_composed: whether a side is a program of many steps, such as a gradient, whose own rounding counts as well.
    """

    name: str
    formula: str
    source: str
    function: Callable[..., tuple[Any, ...]]
    takes: tuple[tuple[str, str], ...] = ()
    applies: Callable[[Any], str | None] = always
    judged: Judged = "rounding"
    depth: int = 1
    scaled_by: int = 1
    oracle: Callable[..., Any] | None = None
    eager: bool = False
    is_composed: bool = False

    @property
    def family(self) -> str:
        """What it is a law of: `monoid`, `aggregator`, `map`, `scan`, `arrow`, `choice` or `plan`."""
        return self.name.partition(".")[0]

    @property
    def short(self) -> str:
        """Its name within the family."""
        return self.name.partition(".")[2]

    @property
    def sides(self) -> tuple[str, str]:
        """The two sides of the formula."""
        left, _, right = self.formula.partition(" ~ ")
        return left, right


def drawn(kind: str, names: str) -> tuple[tuple[str, str], ...]:
    """Name arguments of one kind: `drawn("state", "a b c")`."""
    return tuple((name, kind) for name in names.split())
