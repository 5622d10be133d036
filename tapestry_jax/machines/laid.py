"""How a mesh lies on a machine: which part of a mesh axis is inside a group of devices, and on which lines there.

Devices are numbered as the mesh counts them, its last axis fastest, and groups hold devices in a row: so the last axes
lie inside of a host or pod, and the first ones between. Inside a torus every mesh axis gets lines of its own where
there are enough; else axes share a line, on which neighbours of the outer axis are several hops apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from combinators.errors import MeshError, message
from combinators.frozen import dataclass
from tapestry_jax.machines.machine import Machine


@dataclass(frozen=True)
class Line:
    """A part of a mesh axis on one axis of a torus.

    Attributes:
      length: devices.
      stride: hops from one to the next.
      closed: whether the last is a neighbour of the first.
    """

    length: int
    stride: int
    closed: bool


@dataclass(frozen=True)
class Place:
    """Where a mesh axis lies: `outside` groups, and within a group `inside` devices along `lines` (of a torus)."""

    inside: int
    outside: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Laid:
    """A mesh on a machine: for every mesh axis its place."""

    machine: Machine
    places: tuple[tuple[str, Place], ...]

    def place(self, axis: str) -> Place:
        """Of one mesh axis."""
        return next(place for name, place in self.places if name == axis)

    def __str__(self) -> str:
        return "; ".join(f"{axis}: {_told(place, self.machine)}" for axis, place in self.places)


@lru_cache(maxsize=1024)
def lay(machine: Machine, mesh: tuple[tuple[str, int], ...]) -> Laid:
    """Lay a mesh on a machine.

    Args:
      machine: with a shape, or one whose shape follows from the mesh.
      mesh: axis names and sizes, the outermost first.

    Raises:
      MeshError: when the machine has a shape that the mesh does not fill.
    """
    split = _split([size for _, size in mesh], machine.group)
    inside = [part for part, _ in split]
    # Several tori lie between switches; of groups a machine of this shape has no more.
    devices = math.prod(inside if machine.torus else (size for _, size in mesh))
    if machine.shape and devices != math.prod(machine.shape):
        shown = " x ".join(f"{axis}={size}" for axis, size in mesh)
        raise MeshError(
            message(
                f"the mesh does not fill {machine.name} of {'x'.join(map(str, machine.shape))} devices",
                f"got {shown}",
                remedy=f"Give axes that multiply to {math.prod(machine.shape)}, or name the machine without a shape.",
            )
        )
    if machine.torus == 2 and not machine.shape and math.prod(inside) == machine.group:
        # A whole pod is a square.
        machine = replace(machine, shape=(math.isqrt(machine.group),) * 2)
    lines = _lines(inside, machine) if machine.torus else [()] * len(mesh)
    places = (
        (axis, Place(part, outside, own)) for (axis, _), (part, outside), own in zip(mesh, split, lines, strict=True)
    )
    return Laid(machine, tuple(places))


def _split(sizes: Sequence[int], group: int) -> list[tuple[int, int]]:
    """For every axis how much of it is inside a group, filled from the last axis on, and how much is between."""
    found: list[tuple[int, int]] = []
    room = group
    for size in reversed(sizes):
        # An axis that leaves the group takes the rest of it: what lies beyond is farther apart than a group.
        inside = size if size <= room else math.gcd(size, room)
        room = room // inside if inside == size else 1
        found.append((inside, size // inside))
    return found[::-1]


def _lines(sizes: Sequence[int], machine: Machine) -> list[tuple[Line, ...]]:
    real = [number for number, size in enumerate(sizes) if size > 1]
    if machine.shape:
        matched = _matched(sizes, real, machine.shape)
        if matched is not None:
            return [_alone(lengths, machine) for lengths in matched]
        return _shared(sizes, machine.shape, machine)
    if len(real) <= machine.torus:
        spare = machine.torus - len(real)
        lengths: list[tuple[int, ...]] = [(size,) if size > 1 else () for size in sizes]
        for number in sorted(real, key=lambda number: -sizes[number]):
            parts = _halved(sizes[number]) if spare else None
            if parts is not None:
                lengths[number], spare = parts, spare - 1
        return [_alone(each, machine) for each in lengths]
    largest = sorted(real, key=lambda number: -sizes[number])[: machine.torus]
    owners: list[list[int]] = [[number] for number in sorted(largest)]
    for number in real:
        if number not in largest:
            min(owners, key=lambda own: math.prod(sizes[each] for each in own)).append(number)
    found: list[tuple[Line, ...]] = [()] * len(sizes)
    for own in owners:
        total, stride = math.prod(sizes[each] for each in own), 1
        for number in sorted(own, reverse=True):
            found[number] = (_part(sizes[number], stride, total, machine),)
            stride *= sizes[number]
    return found


def _halved(size: int) -> tuple[int, int] | None:
    """A size as the product of two as near to each other as may be, both long enough to be rings."""
    low = next((low for low in range(math.isqrt(size), 3, -1) if size % low == 0), None)
    return None if low is None else (size // low, low)


def _alone(lengths: Sequence[int], machine: Machine) -> tuple[Line, ...]:
    return tuple(_part(length, 1, length, machine) for length in lengths if length > 1)


def _part(length: int, stride: int, total: int, machine: Machine) -> Line:
    """A part of a line of `total` devices; it is a ring where it goes round all of a line that closes."""
    return Line(length, stride, total % machine.closes == 0 and length * stride == total)


def _matched(sizes: Sequence[int], real: Sequence[int], shape: Sequence[int]) -> list[tuple[int, ...]] | None:
    """For every mesh axis the axes of the torus that multiply to it, each used once."""
    order = sorted(real, key=lambda number: -sizes[number])
    places = [place for place, length in enumerate(shape) if length > 1]

    def search(todo: Sequence[int], free: frozenset[int]) -> dict[int, tuple[int, ...]] | None:
        if not todo:
            return {}
        for count in range(1, len(free) + 1):
            for chosen in itertools.combinations(sorted(free), count):
                if math.prod(shape[place] for place in chosen) == sizes[todo[0]]:
                    rest = search(todo[1:], free - set(chosen))
                    if rest is not None:
                        return {todo[0]: tuple(shape[place] for place in chosen), **rest}
        return None

    found = search(order, frozenset(places))
    return None if found is None else [found.get(number, ()) for number in range(len(sizes))]


def _shared(sizes: Sequence[int], shape: Sequence[int], machine: Machine) -> list[tuple[Line, ...]]:
    """Mesh axes laid along the axes of a torus in their order, from the last on, where they do not match."""
    found: list[tuple[Line, ...]] = []
    left = list(shape)
    stride = [1] * len(left)
    for size in reversed(sizes):
        parts: list[Line] = []
        for place in reversed(range(len(left))):
            part = math.gcd(size, left[place])
            if part > 1:
                parts.append(_part(part, stride[place], shape[place], machine))
                left[place] //= part
                stride[place] *= part
                size //= part
        if size > 1:
            # What fits no axis winds through the torus: one line whose neighbours are a row apart.
            parts.append(Line(size, max(stride), closed=False))
        found.append(tuple(parts))
    return found[::-1]


def _told(place: Place, machine: Machine) -> str:
    parts = [f"{'ring' if line.closed else 'line'} of {line.length}" + (
        f", {line.stride} hops apart" if line.stride > 1 else "") for line in place.lines]  # fmt: skip
    if not machine.torus and place.inside > 1:
        parts.append(f"{place.inside} on a switch")
    if place.outside > 1:
        parts.append(f"{place.outside} groups")
    return " x ".join(parts) or "one device"
