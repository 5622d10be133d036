"""What one collective sends of one leaf, and which leaves of a combination are needed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.planning.derivatives.dependence import Matrix
from tapestry_jax.planning.folding.ordered import Pairs
from tapestry_jax.planning.geometry.layout import dense_bytes


@dataclass(frozen=True)
class Sent:
    """One leaf in one collective.

    Attributes:
      kind: of the collective.
      axes: the mesh axes along which it is sent.
      bytes: per device.
      backward: the collective of as many bytes that its derivative needs; None where it needs none.
      leaves: those of the state that decide what is sent, by number.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    backward: str | None = None
    leaves: frozenset[int] = frozenset()


def next_device(devices: int) -> Pairs:
    """Every position with the next one, the last with none."""
    return tuple((device, device + 1) for device in range(devices - 1))


Reach = list[frozenset[int]]
"""For every leaf of a state, those of the devices' own states that decide it."""


def permuted(
    leaf: Any,
    axes: tuple[str, ...],
    leaves: frozenset[int],
    *,
    smooth: bool = True,
) -> Sent:
    """A leaf, decided by `leaves`, sent along `axes`; `smooth` where its derivative comes back."""
    kind = "collective-permute"
    backward = kind if smooth and is_inexact(leaf.dtype) else None
    return Sent(kind, axes, nbytes(leaf), backward, leaves)


def nbytes(struct: Any) -> int:
    """The bytes of a dense array on a device."""
    return dense_bytes(math.prod(struct.shape), struct.dtype)


def sources(matrix: Matrix, outputs: Iterable[int]) -> set[int]:
    """The inputs that some of the outputs depend on."""
    return {i for out in outputs for i, depends in enumerate(matrix[out]) if depends}


def sides(matrix: Matrix, wanted: set[int]) -> tuple[set[int], set[int]]:
    """Of `earlier (+) later`, which leaves of the one and of the other are needed for the leaves `wanted`."""
    count, found = len(matrix), sources(matrix, wanted)
    return {i for i in found if i < count}, {i - count for i in found if i >= count}


def closure(matrix: Matrix, wanted: set[int]) -> set[int]:
    """What is needed of both arguments of a combination repeated any number of times."""
    while (more := wanted.union(*sides(matrix, wanted))) != wanted:
        wanted = more
    return wanted


def alone(count: int) -> Reach:
    """What decides the leaves of a state before it is merged with another one: each itself."""
    return [frozenset({leaf}) for leaf in range(count)]


def merged(matrix: Matrix, reach: Reach) -> Reach:
    """What decides the leaves of states that have been merged once more, on some devices or on all."""
    both = [*reach, *reach]
    return [
        before.union(*(both[i] for i, hit in enumerate(row) if hit)) for before, row in zip(reach, matrix, strict=True)
    ]
