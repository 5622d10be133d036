"""Which steps compute the same of operands of the same types: a number for each, equal where they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapestry_jax.lifting.values import CellStep, LeafStep, Step, Steps, Values, operands_of, results_of


def keys_of(steps: Sequence[Step], values: Values) -> list[int]:
    """A number for each step."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(_told(step, values), len(numbers)) for step in steps]


def _told(step: Step, values: Values) -> Any:
    types = tuple(_type(values, value) for value in (*operands_of(step), *results_of(step)))
    if isinstance(step, CellStep):
        reads, writes = (tuple(dims for _, dims in ends) for ends in (step.operands, step.results))
        # Numbers of other dtypes, and the two zeros, are equal to Python; their texts are not.
        return "cells", step.program, repr(step.program), tuple(step.coordinates), reads, writes, types
    if isinstance(step, LeafStep):
        return "leaf", step.operation, types
    return "loop", step.carries, step.stacked, step.length, types, _body(step.body, values)


def _body(steps: Steps, values: Values) -> Any:
    """A body, its values numbered as they are met."""
    numbers: dict[int, int] = {}

    def numbered(listed: Sequence[int]) -> tuple[int, ...]:
        return tuple(numbers.setdefault(value, len(numbers)) for value in listed)

    inputs = numbered(steps.inputs)
    told = tuple((_told(s, values), numbered(operands_of(s)), numbered(results_of(s))) for s in steps.steps)
    return inputs, told, numbered(steps.outputs)


def _type(values: Values, value: int) -> Any:
    return values.shapes[value], values.dtypes[value].name
