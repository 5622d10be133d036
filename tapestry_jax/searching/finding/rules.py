"""What needs no planning to be left out: candidates that contradict themselves, or that say what a shorter one says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tapestry_jax.searching.space import Space

LOOPS = 2
"""So many dimensions are taken in chunks at most."""
Chosen = Mapping[tuple[str, str, tuple[str, ...]], Any]


def is_left_out(space: Space, choice: Sequence[int]) -> bool:
    """Whether a candidate is refused by planning for certain, or is another candidate in other words.

    It is kept where operations may be excepted: an exception can resolve what names contradict.
    """
    chosen = space.chosen(choice)
    axes = {name: value for (kind, name, _), value in chosen.items() if kind == "axes"} | dict(space.fixed)
    if sum(kind == "chunks" for kind, _, _ in chosen) > LOOPS:
        return True
    return _says_nothing(space, chosen, axes) or (not space.excepts and _clashes(space, axes))


def _clashes(space: Space, axes: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a mesh axis cuts two dimensions of one operation."""
    placed = list(axes.items())
    return any(
        not set(one).isdisjoint(other) and frozenset((first, second)) in space.meetings
        for number, (first, one) in enumerate(placed)
        for second, other in placed[:number]
    )


def _says_nothing(space: Space, chosen: Chosen, axes: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether an item has no effect: stripes and halos of what is not cut, rings that nothing else lies on."""
    for (kind, name, _), value in chosen.items():
        if kind in ("stripes", "halo") and not axes.get(name):
            return True
        if kind == "ring":
            others = (other for other, own in axes.items() if other != name and value in own)
            if value in axes.get(name, ()) or not any(frozenset((name, other)) in space.meetings for other in others):
                return True
    return False
