"""Layers that are written out one after the other become one loop, where they are equal.

Equal is what steps compute and how they read each other, not how parameters are called: a stretch of steps that follows
itself, each time with the same carries, the same values from outside, and inputs of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from posixpath import commonpath
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.lifting.finding.same import keys_of
from tapestry_jax.lifting.values import (
    CellStep,
    LeafStep,
    LoopStep,
    Step,
    Steps,
    Values,
    needed,
    operands_of,
    results_of,
)

NAME = "layers"

Group = tuple[int, ...]
"""One input of every layer, in the order of the layers."""


def with_stacks(
    steps: Steps, values: Values, may_stack: Callable[[Group], bool]
) -> tuple[Steps, list[tuple[int, Group]]]:
    """The steps with loops in the place of equal layers, and their new inputs, each with those that it stacks.

    Args:
      steps: of a function.
      values: the types of all values, to which new ones are added.
      may_stack: whether these inputs may be one.
    """
    kept = _beside_readers(needed(steps.steps, steps.outputs), steps)
    stacked: list[tuple[int, Group]] = []
    while (found := _largest(kept, steps, values, may_stack)) is not None:
        loop, inputs = _loop(kept, found, values)
        kept = [*kept[: found.start], loop, *kept[found.start + found.length * found.count :]]
        stacked += inputs
    gone = {value for _, group in stacked for value in group}
    inputs = [value for value in steps.inputs if value not in gone] + [value for value, _ in stacked]
    return replace(steps, steps=kept, inputs=inputs), stacked


def _beside_readers(steps: Sequence[Step], whole: Steps) -> list[Step]:
    """The steps, those on one input alone before their one reader: parameters that are converted before all layers."""
    counts = Counter(value for step in steps for value in operands_of(step))
    counts.update(whole.outputs)
    known = {value for value in whole.inputs if counts[value] == 1}
    moved: dict[int, Step] = {}
    for step in steps:
        if isinstance(step, CellStep) and known.issuperset(own := operands_of(step)) and len(own) == 1:
            (result, *_) = results_of(step)
            if counts[result] == 1 and result not in whole.outputs:
                known.add(result)
                moved[result] = step
    first = {id(step) for step in moved.values()}
    kept: list[Step] = []

    def write(step: Step) -> None:
        for value in operands_of(step):
            if value in moved:
                write(moved.pop(value))
        kept.append(step)

    for step in steps:
        if id(step) not in first:
            write(step)
    return kept


@dataclass(frozen=True)
class Repeat:
    """Equal layers.

    Attributes:
      start: the first step.
      length: of a layer.
      count: of layers.
      carries: what the first layer reads in the place of what others read of the one before; and what that is: the
        number of a step and of its result.
      stacked: inputs that each layer has of its own.
      constants: what all layers read.
    """

    start: int
    length: int
    count: int
    carries: tuple[tuple[int, tuple[int, int]], ...]
    stacked: tuple[Group, ...]
    constants: tuple[int, ...]


def _largest(steps: Sequence[Step], whole: Steps, values: Values, may_stack: Callable[[Group], bool]) -> Repeat | None:
    """The layers that are most of the steps; of equal choices the one with the fewest carries."""
    for start, length, end in _runs(keys_of(steps, values)):
        reader, best = _Reader(steps, whole, may_stack, length), None
        for at in range(start, end - 2 * length + 1):
            if best is not None and best.count > (end - at) // length:
                break
            made = reader.repeat(at, end)
            if made is not None and (best is None or _rank(made) > _rank(best)):
                best = made
        if best is not None:
            return best
    return None


def _rank(repeat: Repeat) -> tuple[int, int]:
    return repeat.count, -len(repeat.carries)


def _runs(keys: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches that follow themselves: start, length of one, end; those that are most of the steps first."""
    numbers = np.asarray(keys)
    found: list[tuple[int, int, int]] = []
    for length in range(1, len(numbers) // 2 + 1):
        same = np.flatnonzero(np.diff(np.concatenate([[0], numbers[:-length] == numbers[length:], [0]])))
        runs = same.reshape(-1, 2)
        found += [(int(a), length, int(b) + length) for a, b in runs if b - a >= length]
    return iter(sorted(found, key=lambda run: (-((run[2] - run[0]) // run[1]) * run[1], run[1])))


class _Reader:
    """Tells how layers of one length read each other."""

    def __init__(self, steps: Sequence[Step], whole: Steps, may_stack: Callable[[Group], bool], length: int) -> None:
        self._steps, self._may_stack, self._length = steps, may_stack, length
        self._operands = [operands_of(step) for step in steps]
        self._made: dict[int, tuple[int, int]] = {
            value: (at, place) for at, step in enumerate(steps) for place, value in enumerate(results_of(step))
        }
        self._readers: dict[int, list[int]] = {}
        for at, operands in enumerate(self._operands):
            for value in operands:
                self._readers.setdefault(value, []).append(at)
        self._inputs, self._outputs = set(whole.inputs), set(whole.outputs)

    def repeat(self, start: int, end: int) -> Repeat | None:
        """As many layers as follow each other from a step on; None where there are no two."""
        slots = self._slots(start, start + self._length)  # the second layer tells what is carried
        count = 2
        while start + (count + 1) * self._length <= end and self._is_alike(slots, start, count):
            count += 1
        while count > 1:
            found = self._with(slots, start, count)
            if found is not None:
                return found
            count -= 1
        return None

    def _place(self, value: int, start: int, layer: int) -> tuple[str, int, int] | None:
        """Where a value of a layer, or of the one before, is made."""
        at, place = self._made.get(value, (-1, 0))
        own = start + layer * self._length
        if own <= at < own + self._length:
            return "own", at - own, place
        if own - self._length <= at < own and at >= start:
            return "before", at - own + self._length, place
        return None

    def _slots(self, start: int, second: int) -> list[tuple[str, int, int] | None]:
        """For every operand of the second layer where it is made."""
        operands = (value for at in range(second, second + self._length) for value in self._operands[at])
        return [self._place(value, start, 1) for value in operands]

    def _read(self, start: int, layer: int) -> list[int]:
        own = start + layer * self._length
        return [value for at in range(own, own + self._length) for value in self._operands[at]]

    def _is_alike(self, slots: Sequence[Any], start: int, layer: int) -> bool:
        return all(
            self._place(value, start, layer) == slot
            for value, slot in zip(self._read(start, layer), slots, strict=True)
        )

    def _with(self, slots: Sequence[Any], start: int, count: int) -> Repeat | None:
        """Whether so many layers are a loop."""
        carries: dict[tuple[int, int], int] = {}
        groups: dict[Group, None] = {}
        for slot, *read in zip(slots, *(self._read(start, layer) for layer in range(count)), strict=True):
            first = read[0]
            place = self._place(first, start, 0)
            if slot is not None and slot[0] == "own":
                if place != slot:
                    return None
            elif place is not None:
                return None
            elif slot is not None:
                if carries.setdefault(slot[1:], first) != first:
                    return None
            else:
                groups[tuple(read)] = None
        constants = [group[0] for group in groups if len({*group}) == 1]
        stacked = [group for group in groups if len({*group}) > 1]
        end = start + count * self._length
        if not stacked or not all(self._is_stackable(group, start) for group in stacked):
            return None
        if sum(len(group) for group in stacked) != len({value for group in stacked for value in group}):
            return None
        if not self._is_closed(start, end, set(carries)):
            return None
        pairs = tuple((first, place) for place, first in carries.items())
        return Repeat(start, self._length, count, pairs, tuple(stacked), tuple(constants))

    def _is_stackable(self, group: Group, start: int) -> bool:
        """Inputs of the function, each read by one layer alone."""
        if any(value not in self._inputs or value in self._outputs for value in group):
            return False
        layers = [{(at - start) // self._length for at in self._readers[value]} for value in group]
        return layers == [{layer} for layer in range(len(group))] and self._may_stack(group)

    def _is_closed(self, start: int, end: int, carries: set[tuple[int, int]]) -> bool:
        """Whether nothing else reads what the layers make, but the last one's carries."""
        last = end - self._length
        for at in range(start, end):
            for place, value in enumerate(results_of(self._steps[at])):
                is_read = value in self._outputs or any(reader >= end for reader in self._readers.get(value, ()))
                if is_read and (at < last or (at - last, place) not in carries):
                    return False
        return True


def _loop(steps: Sequence[Step], found: Repeat, values: Values) -> tuple[LoopStep, list[tuple[int, Group]]]:
    """The loop, and its new inputs. Its body is the second layer: there, what is carried is told from all else."""
    layers = [steps[found.start + found.length * at :][: found.length] for at in range(found.count)]
    carried, made, last = (
        [results_of(layers[at][step])[place] for _, (step, place) in found.carries] for at in (0, 1, -1)
    )
    inner = [*carried, *(group[1] for group in found.stacked), *found.constants]
    within = {
        value: values.new(values.shapes[value], values.dtypes[value])
        for value in (*inner, *(value for step in layers[1] for value in results_of(step)))
    }
    body = Steps([within[v] for v in inner], [_renumbered(s, within) for s in layers[1]], [within[v] for v in made])
    inputs = [
        (values.new((found.count, *values.shapes[group[0]]), values.dtypes[group[0]]), group) for group in found.stacked
    ]
    operands = [*(v for v, _ in found.carries), *(value for value, _ in inputs), *found.constants]
    place = layers[0][0].place
    scope = _scoped(body.steps)
    return LoopStep(body, operands, len(carried), len(inputs), found.count, last, NAME, place, scope), inputs


def _scoped(steps: Sequence[Step]) -> str:
    """Take the layer's own number out of the scopes of its steps; returns the scope that all layers are in."""
    parts = [step.scope.split("/") for step in steps]
    layer = commonpath([step.scope for step in steps]).split("/")
    around = layer[:-1]
    for step, own in zip(steps, parts, strict=True):
        step.scope = "/".join([*around, *own[len(layer) :]])
    return "/".join(around)


def _renumbered(step: Step, within: dict[int, int]) -> Step:
    """The step with other values."""
    if isinstance(step, CellStep):
        operands, results = (
            [(within.get(value, value), dims) for value, dims in ends] for ends in (step.operands, step.results)
        )
        return replace(step, operands=operands, results=results)
    assert isinstance(step, LeafStep | LoopStep)
    operands, results = ([within.get(value, value) for value in ends] for ends in (step.operands, step.results))
    return replace(step, operands=operands, results=results)
