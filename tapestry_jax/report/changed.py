"""What two prices of one program do not share: seconds by operation, and by what is sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from combinators.frozen import dataclass
from tapestry_jax.planning.pricing.cost import Cost, duration

_NEAR = 1e-9
_ROWS = 24


@dataclass(frozen=True)
class Changed:
    """Something that two plans compute, or send, in other times.

    Attributes:
      what: `compute`, or kind and mesh axes of what is sent.
      path: of the operation.
      before: seconds in the one plan; 0 where it has none.
      after: seconds in the other.
    """

    what: str
    path: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{duration(self.before):>10} -> {duration(self.after):>10}  {self.what}, {self.path}"


def changed(before: Cost, after: Cost) -> tuple[Changed, ...]:
    """What differs, the largest difference first; transfers as far as they are not hidden."""
    found = [*_differing(_computed(before), _computed(after)), *_differing(_sent(before), _sent(after))]
    return tuple(sorted(found, key=lambda each: -abs(each.after - each.before)))


def is_near(one: float, other: float) -> bool:
    """Whether two prices are equal but for rounding."""
    return math.isclose(one, other, rel_tol=_NEAR)


def rows(found: tuple[Changed, ...]) -> Iterator[str]:
    """Lines of a table, the first ones of many."""
    yield from (f"  {each}" for each in found[:_ROWS])
    if len(found) > _ROWS:
        rest = sum(each.after - each.before for each in found[_ROWS:])
        yield f"  and {len(found) - _ROWS} more, together {'-' * (rest < 0)}{duration(abs(rest))}"


Seconds = Mapping[tuple[str, str], float]


def _computed(cost: Cost) -> Seconds:
    return {("compute", each.path): each.seconds for each in cost.operations}


def _sent(cost: Cost) -> Seconds:
    found: dict[tuple[str, str], float] = {}
    for each in cost.transfers:
        key = f"{each.kind} over {'+'.join(each.axes)}{' (gradient)' * each.backward}", each.path
        found[key] = found.get(key, 0.0) + each.seconds - each.hidden
    return found


def _differing(before: Seconds, after: Seconds) -> Iterator[Changed]:
    for key in dict.fromkeys((*before, *after)):
        one, other = before.get(key, 0.0), after.get(key, 0.0)
        if not is_near(one, other):
            yield Changed(*key, one, other)
