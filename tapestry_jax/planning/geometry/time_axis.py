"""Loops in time, written as mesh axes that no mesh has: `@batch:8` turns 8 times, `@keys:4~data` goes round a ring.

A dimension that is cut over `("data", "@batch:8")` lies in pieces on the devices of `data`, each of which takes its
piece in eight chunks, one after the other. Sizes, padding, coordinates and coverage treat both alike; only lowering
asks the mesh for the one index and the loop for the other.
"""

from __future__ import annotations

from collections.abc import Iterable


def chunk_axis(dim: str, turns: int) -> str:
    """The axis of a loop over `turns` chunks of a dimension."""
    return f"@{dim}:{turns}"


def ring_axis(dim: str, axis: str, devices: int) -> str:
    """The axis of a loop in which the pieces of a dimension go round the devices of a mesh axis."""
    return f"@{dim}:{devices}~{axis}"


def is_time(axis: str) -> bool:
    """Whether an axis is a loop."""
    return axis.startswith("@")


def turns_of(axis: str) -> int:
    """How often a loop turns."""
    return int(axis.rpartition(":")[2].partition("~")[0])


def dim_of(axis: str) -> str:
    """The dimension that a loop runs over."""
    return axis[1:].rpartition(":")[0]


def ring_of(axis: str) -> str | None:
    """The mesh axis around which a ring goes; None for chunks and for mesh axes."""
    return axis.rpartition("~")[2] if is_time(axis) and "~" in axis.rpartition(":")[2] else None


def in_space(axes: Iterable[str]) -> tuple[str, ...]:
    """The mesh axes among `axes`."""
    return tuple(axis for axis in axes if not is_time(axis))


def in_time(axes: Iterable[str]) -> tuple[str, ...]:
    """The loops among `axes`."""
    return tuple(axis for axis in axes if is_time(axis))


def spread(axes: Iterable[str]) -> frozenset[str]:
    """The mesh axes over which a value that is cut over `axes` varies: what goes round a ring differs along it."""
    return frozenset(ring_of(axis) or axis for axis in axes if not is_time(axis) or ring_of(axis) is not None)


def label(axis: str) -> str:
    """How tables print an axis: `data`, `8 chunks`, `ring data`."""
    if not is_time(axis):
        return axis
    ring = ring_of(axis)
    return f"ring {ring}" if ring is not None else f"{turns_of(axis)} chunks"
