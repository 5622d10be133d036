"""What is known of an arrow's operands and results before they come, and whether two arrows can meet."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.errors import CompositionError, message
from combinators.frozen import dataclass
from combinators.index_space.operand import Operand


@dataclass(frozen=True)
class Face:
    """Axes of one operand or result: label and, where known, size; `open` where there may be more, behind `lead`."""

    axes: tuple[tuple[str, int | None], ...]
    open: bool = False
    lead: int = 0

    @classmethod
    def of(cls, operand: Operand, sizes: dict[str, int]) -> Face:
        """The face of an operand of a signature."""
        axes = tuple((str(axis), sizes.get(axis.name or axis.whole_name or "")) for axis in operand.axes)
        return cls(axes, operand.ellipsis, operand.lead)

    def __str__(self) -> str:
        shown = [label if size is None else f"{label}={size}" for label, size in self.axes]
        return f"({', '.join([*shown[: self.lead], *['...'] * self.open, *shown[self.lead :]])})"


def check_faces(
    first: str, gives: Sequence[Face] | None, second: str, takes: Sequence[Face] | None, arity: int | None
) -> None:
    """Refuse a composition that cannot work, as far as ranks, counts and sizes are known.

    Raises:
      CompositionError: with both sides, the first axis that differs, and a remedy.
    """
    if gives is not None and arity is not None and len(gives) != arity:
        raise CompositionError(
            message(
                f"cannot compose `{second}` after `{first}`.",
                f"`{first}` gives {len(gives)} result{'s' * (len(gives) != 1)}",
                f"`{second}` takes {arity} operand{'s' * (arity != 1)}",
                remedy=f"Fan out with `&`, or fix operands of `{second}` with bind.",
            )
        )
    if gives is None or takes is None:
        return
    for left, right in zip(gives, takes, strict=False):
        problem = _difference(left, right)
        if problem is not None:
            raise CompositionError(
                message(
                    f"cannot compose `{second}` after `{first}`.",
                    f"`{first}` gives {left}",
                    f"`{second}` takes {right}; {problem}",
                    remedy="Change the sizes or put a tp.rearrange between them.",
                )
            )


def _difference(left: Face, right: Face) -> str | None:
    if not left.open and not right.open and len(left.axes) != len(right.axes):
        return f"they differ in rank, {len(left.axes)} and {len(right.axes)}"
    if not left.open and len(left.axes) < len(right.axes):
        return f"at least {len(right.axes)} axes"
    # Before `...` axes meet from the left, behind it from the right.
    closed = not left.open and not right.open
    leads = [len(face.axes) if closed else face.lead for face in (left, right) if face.open or closed]
    ends = [len(face.axes) - face.lead for face in (left, right) if face.open]
    pairs = [*zip(left.axes, right.axes, strict=False)][: min(leads)]
    pairs += [*zip(reversed(left.axes), reversed(right.axes), strict=False)][: min(ends, default=0)]
    for (_, size), (label, expected) in pairs:
        if size is not None and expected is not None and size != expected:
            return f"they differ at `{label}`"
    return None
