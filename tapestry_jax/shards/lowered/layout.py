"""Which mesh axes move which axis of a piece: all that a lowered program says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapestry_jax.shards.parts import Coordinate, Ranges
from tapestry_jax.shards.ranges import Range

Laid = tuple[tuple[str, ...], ...]
"""Of every axis the mesh axes that move it, the outermost first."""


def laid(box: Ranges, kinds: Mapping[str, Coordinate]) -> Laid:
    """The mesh axes that move the axes of a box; loops are left out; what goes round lies as before."""
    return tuple(tuple(_axes(own, kinds)) for own in box)


def _axes(own: Range, kinds: Mapping[str, Coordinate]) -> Sequence[str]:
    found: list[str] = []
    for name, _ in sorted(own.steps, key=lambda step: -abs(step[1])):
        known = kinds[name]
        if known.kind == "axis" and known.count > 1:
            found.append(name)
        elif known.kind == "ring":
            found += known.along
    return found


def is_empty(box: Ranges) -> bool:
    """Whether no device holds a cell."""
    return any(not own.count + own.before + own.after or own.limit[0] >= own.limit[1] for own in box)
