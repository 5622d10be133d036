"""The numbers at which what a program chooses turns into another choice: just below and just above a threshold.

A threshold may stand in a program as a number, or come of what others are computed to. Of operands that grow from
small to large, or from below zero to above it, some choice turns on the way, and halves of that way find where.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from combinators.choosing.choices import Found, is_other

# What turns is found to within such a part of a step.
_CLOSE = 1 / 64


def edges(
    steps: Sequence[float], at: Callable[[float], list[Any]], chosen: Callable[[list[Any]], Found]
) -> Iterator[list[Any]]:
    """Operands on both sides of where a choice turns.

    Args:
      steps: of a way, in their order.
      at: gives operands at a step, or between two.
      chosen: what a program chooses of them.
    """
    found = [(step, chosen(at(step))) for step in steps]
    for (low, below), (high, above) in itertools.pairwise(found):
        for place in below.keys() | above.keys():
            if _turns(below, above, place):
                for step in _between(low, high, below, place, lambda step: chosen(at(step))):
                    yield at(step)


def _between(
    low: float, high: float, below: Found, place: int, chosen: Callable[[float], Found]
) -> tuple[float, float]:
    """Two steps close to each other between which a choice turns, as it does between these."""
    while high - low > _CLOSE:
        middle = (low + high) / 2
        found = chosen(middle)
        low, high, below = (low, middle, below) if _turns(below, found, place) else (middle, high, found)
    return low, high


def _turns(below: Found, above: Found, place: int) -> bool:
    one, other = below.get(place, ()), above.get(place, ())
    return len(one) != len(other) or any(is_other(a, b, maps=False) for (a, _), (b, _) in zip(one, other, strict=True))
