"""The dual of a monoid: the same states, merged with their arguments swapped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid, side_by_side
from combinators.merging.parts import Wrapping


def dual(monoid: Monoid) -> Monoid:
    """Swap the arguments of `combine`: `a + b` becomes `b + a`.

    Folded, the elements are merged from the last one to the first. A reversed scan with the dual of a recurrence's
    monoid runs the recurrence backwards in time. The dual of a commutative monoid is itself.

    Args:
      monoid: any.

    Returns:
      A monoid of the same states; `dual(dual(m))` is `m`.

    Laws: those of `monoid`; dual(a, b) = combine(b, a).
    Source: the opposite monoid (algebra).
    """
    if monoid.commutative:
        return monoid
    if monoid.parts:
        return side_by_side(tuple(map(dual, monoid.parts)), monoid.keys)
    label = repr(monoid)[len("Monoid(") : -1]
    if isinstance(monoid.combine, Swapped):
        return replace(monoid, combine=monoid.combine.combine, name=label.removeprefix("dual "))
    return replace(monoid, combine=Swapped(monoid.combine), name=f"dual {label}")


@final
@dataclass(frozen=True)
class Swapped(Wrapping):
    """Call a function of two states with its arguments swapped."""

    combine: Callable[[Any, Any], Any]

    def __call__(self, left: Any, right: Any) -> Any:
        """Return `combine(right, left)`."""
        return self.combine(right, left)

    def each(self, change: Callable[..., Any]) -> Swapped:
        """The same of a changed function."""
        return Swapped(change(self.combine))
