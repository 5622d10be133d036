"""What a lifted function is before its dimensions have names: steps over numbered values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.cells import Program

Atom = int | np.generic
"""A value, by its number, or a constant number."""

Dims = tuple[int | None, ...]
"""For every axis of a tensor the number of its dimension in a step; None for an axis of size 1."""


@dataclass(eq=False)
class CellStep:
    """Chains of primitives that act cell by cell, spread, and move axes.

    Attributes:
      name: of the primitive that counts most.
      operands: values, with the dimensions of their axes.
      coordinates: dimensions whose coordinates are further operands.
      program: on operands, then coordinates.
      results: values, with the dimensions of their axes.
      sizes: of every dimension.
    """

    name: str
    operands: list[tuple[int, Dims]]
    coordinates: list[int]
    program: Program
    results: list[tuple[int, Dims]]
    sizes: list[int]
    place: str = ""
    scope: str = ""


@dataclass(eq=False)
class LeafStep:
    """An operation over its own dimensions.

    Attributes:
      operation: its signature has local names.
      operands: values.
      results: values.
    """

    operation: Operation
    operands: list[int]
    results: list[int]
    place: str = ""
    scope: str = ""

    @property
    def name(self) -> str:
        """That of the operation."""
        return self.operation.name


@dataclass(eq=False)
class LoopStep:
    """A scan: a body that is repeated.

    Attributes:
      body: its inputs are the carries, one slice of each stacked operand, then the constants.
      operands: carries, stacked operands, constants.
      carries: how many are carried.
      stacked: how many are sliced along their first axis.
      length: of the scan.
      results: final carries, then stacked outputs.
      until: whether it ends before the first turn in which carry 0 holds.
    """

    body: Steps
    operands: list[int]
    carries: int
    stacked: int
    length: int
    results: list[int]
    name: str = "scan"
    place: str = ""
    scope: str = ""
    until: bool = False


Step = CellStep | LeafStep | LoopStep


@dataclass(eq=False)
class Steps:
    """A function as steps.

    Attributes:
      inputs: values from outside.
      steps: in order.
      outputs: values that are returned.
    """

    inputs: list[int] = field(default_factory=list[int])
    steps: list[Step] = field(default_factory=list[Step])
    outputs: list[int] = field(default_factory=list[int])


def needed(steps: Sequence[Step], outputs: Sequence[int]) -> list[Step]:
    """The steps that an output needs."""
    used, kept = set(outputs), list[Step]()
    for step in reversed(steps):
        if used.isdisjoint(results_of(step)):
            continue
        kept.append(step)
        used.update(operands_of(step))
    return kept[::-1]


def operands_of(step: Step) -> list[int]:
    """The values that a step reads."""
    return [value for value, _ in step.operands] if isinstance(step, CellStep) else step.operands


def results_of(step: Step) -> list[int]:
    """The values that a step gives."""
    return [value for value, _ in step.results] if isinstance(step, CellStep) else step.results


@dataclass(eq=False)
class Values:
    """The types of all values of a lifted function, those inside of loops too."""

    shapes: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    dtypes: list[Any] = field(default_factory=list[Any])

    def new(self, shape: Sequence[int], dtype: Any) -> int:
        """A new value."""
        self.shapes.append(tuple(int(size) for size in shape))
        self.dtypes.append(np.dtype(dtype))
        return len(self.shapes) - 1

    def type_of(self, value: int) -> jax.ShapeDtypeStruct:
        """The type of a value."""
        return jax.ShapeDtypeStruct(self.shapes[value], self.dtypes[value])
