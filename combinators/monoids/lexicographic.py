"""The lexicographic product: an extremum, and what belongs to the elements that attain it."""

from __future__ import annotations

from typing import Any, final

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.chosen import choose, merge_chosen
from combinators.merging.monoid import IdentityOf, Monoid
from combinators.merging.parts import SideBySide

# State: (key, payload): the extreme key so far, and the merged payloads of the elements that have this key.


def lexicographic(order: Monoid, payload: Monoid) -> Monoid:
    """Find the extreme key and merge what belongs to it.

        (k1, p1) + (k2, p2) = (k1, p1 + p2) if k1 = k2, else the pair whose key the order prefers

    With `Max` and `Sum` it counts how often the maximum occurs; with `Max` and `Max` pairs are ordered as words are;
    with `Max` and `lexicographic(Max, Min)` triples are.

    Args:
      order: `Max` or `Min`; keys are arrays of one cell. NaN beats every number, and equals NaN.
      payload: merges what belongs to equal keys.

    Returns:
      A monoid of states `(key, payload)`, commutative and idempotent where `payload` is.

    Raises:
      GraphError: when `order` does not choose the greater or the lesser of two.

    Laws: those of `payload`, for the elements of the extreme key.
    Source: the lexicographic order (algebra); original in this form.
    """
    if order.native not in ("max", "min"):
        raise GraphError(
            message(
                "monoids.lexicographic: the first monoid does not choose one of two keys.",
                "expected  monoids.Max or monoids.Min",
                f"got       {order!r}",
                remedy="Order by a maximum or a minimum; put other monoids second.",
            )
        )
    names = [repr(part)[len("Monoid(") : -1] for part in (order, payload)]
    return Monoid(
        SideBySide((IdentityOf(order), IdentityOf(payload)), None),
        Preferred(order, payload),
        commutative=payload.commutative,
        idempotent=payload.idempotent,
        name=f"{names[0]} then {names[1]}",
    )


@final
@dataclass(frozen=True)
class Preferred:
    """Keep the preferred key and its payload; merge the payloads of equal keys."""

    order: Monoid
    payload: Monoid

    def __call__(self, left: Any, right: Any) -> Any:
        """Return `(key, payload)`."""
        (key1, first), (key2, second) = left, right
        key = self.order.merge(key1, key2)
        has1, has2 = _equal(key1, key), _equal(key2, key)
        # What is dropped is not merged either: of an infinity beside it even a slope of 0 would be NaN.
        return key, merge_chosen(self.payload, has1 & has2, first, second, choose(has1, first, second), dropped=True)


def _equal(a: Any, b: Any) -> Any:
    return (a == b) | ((a != a) & (b != b))
