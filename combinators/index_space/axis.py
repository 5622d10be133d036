"""One axis of an operand or a result, as a signature writes it: `y`, `[c]`, `(2*y+[dy]-1)`, `(h d)` or `1`."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Literal

from combinators.frozen import dataclass

Span = tuple[int, int]
"""Half-open range of characters of a signature's text."""


@dataclass(frozen=True)
class Term:
    """One dimension in an axis.

    Args:
      name: the dimension.
      coefficient: cells of the tensor per step along the dimension; never 0. Always 1 in a composite axis.
      whole: whether the dimension is written `[name]`, so that it may not be cut.
    """

    name: str
    coefficient: int = 1
    whole: bool = False

    def __str__(self) -> str:
        """Give the term as a signature writes it."""
        name = f"[{self.name}]" if self.whole else self.name
        if self.coefficient == 1:
            return name
        return f"-{name}" if self.coefficient == -1 else f"{self.coefficient}*{name}"


@dataclass(frozen=True)
class Axis:
    """How one axis of a tensor is indexed by the dimensions of an index space.

    Args:
      kind: `"affine"`, the cell `offset + sum(coefficient * index)`; `"composite"`, row-major with the outermost term
        first; `"one"`, a broadcast axis of size 1 without terms.
      terms: the dimensions, in the order written.
      offset: the constant of an affine axis.
      span: where the axis stands in the signature's text; no part of its value.
    """

    kind: Literal["affine", "composite", "one"]
    terms: tuple[Term, ...] = ()
    offset: int = 0
    span: Span | None = field(default=None, compare=False, repr=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The dimensions of the axis, in the order written."""
        return tuple(term.name for term in self.terms)

    @property
    def name(self) -> str | None:
        """The dimension of a bare axis such as `y`; None for every other axis."""
        return self.terms[0].name if self.is_bare and not self.terms[0].whole else None

    @property
    def whole_name(self) -> str | None:
        """The dimension of a bare whole axis such as `[c]`; None for every other axis."""
        return self.terms[0].name if self.is_bare and self.terms[0].whole else None

    @cached_property
    def is_bare(self) -> bool:
        """Whether the axis is one dimension as it is: `y` or `[c]`."""
        return self.kind == "affine" and self.offset == 0 and len(self.terms) == 1 and self.terms[0].coefficient == 1

    @property
    def is_window(self) -> bool:
        """Whether the axis is an affine expression that is more than one bare dimension."""
        return self.kind == "affine" and not self.is_bare

    def __str__(self) -> str:
        """Give the axis as a signature writes it."""
        if self.kind == "one":
            return "1"
        if self.kind == "composite":
            return "(" + " ".join(map(str, self.terms)) + ")"
        if self.is_bare:
            return str(self.terms[0])
        parts = [str(term) for term in self.terms]
        if self.offset:
            parts.append(str(self.offset))
        text = "".join(part if part.startswith("-") else f"+{part}" for part in parts)
        return "(" + text.removeprefix("+") + ")"
