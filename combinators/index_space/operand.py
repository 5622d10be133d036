"""Operands and results of a signature: how one tensor is indexed by the dimensions of the index space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Span
from combinators.kernels.immutable import Immutable


@dataclass(frozen=True)
class Operand(Immutable):
    """One operand or result.

    Args:
      axes: its axes; empty for a 0-d tensor and for a coordinate.
      ellipsis: whether it has `...`, any number of map dimensions.
      coordinate: for an operand `@q` the dimension whose global coordinates it holds; else None.
      span: where it stands in the signature's text; no part of its value.
      lead: how many of the axes stand before `...`.
      ellipsis_span: where `...` stands in the text; no part of its value.
    """

    axes: tuple[Axis, ...] = ()
    ellipsis: bool = False
    coordinate: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    lead: int = 0
    ellipsis_span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions of its axes in order of appearance; a coordinate has none."""
        return unique(name for axis in self.axes for name in axis.names)

    def __str__(self) -> str:
        """Give the operand as a signature writes it; a 0-d tensor is `()`."""
        if self.coordinate is not None:
            return f"@{self.coordinate}"
        return " ".join(self.around("...", map(str, self.axes))) or "()"

    def around(self, ellipsis: str, axes: Iterable[str]) -> tuple[str, ...]:
        """Texts of the axes with a text for `...` in its place, where there is one."""
        texts = tuple(axes)
        return (*texts[: self.lead], ellipsis, *texts[self.lead :]) if self.ellipsis else texts


def canonical(operands: Sequence[Operand], results: Sequence[Operand]) -> str:
    """The one text of a signature that means these operands and results."""
    return f"{', '.join(map(str, operands))} -> {', '.join(map(str, results))}".lstrip()


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names in order of first appearance, each once."""
    return tuple(dict.fromkeys(names))
