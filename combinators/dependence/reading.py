"""Which cells of one axis each cell of a tensor reads, as linear forms of the tensor's positions, followed exactly.

The position along an axis of a tensor is made of digits: of a composition `(h d)` that holds `h` and `d`, each is the
position divided by a number, modulo a size. A form is a sum of digits times coefficients, plus an offset; a reading is
the set of forms by which a cell reads. A window is several that differ by their offsets, and so is what was folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from combinators.index_space.axis import Axis
from combinators.index_space.extent import axis_extent

Digit = tuple[int, int, int]
"""Of the position along an axis: which axis, what it is divided by, and how many values it has."""

Form = tuple[tuple[tuple[Digit, int], ...], int]
"""Digits with their coefficients, in order, and an offset."""

Reading = frozenset[Form]

MOST_FORMS = 4096
"""Of one reading; more are not listed."""

ASKED = 64
"""Positions at which it is looked whether one index is up to another."""

NOWHERE = -1
"""Stands for the cell that is read where none is."""

_Parts = dict[tuple[str, int, int], int]
"""Coefficients of digits of dimensions: name, divisor and number of values."""


def itself(axis: int, size: int) -> Reading:
    """The reading of an axis by the tensor that has it: every cell reads its own."""
    return frozenset({(_merged({(axis, 1, size): 1}), 0)})


def places(axes: Sequence[Axis], sizes: Mapping[str, int]) -> dict[str, Digit]:
    """Where dimensions of known sizes stand in a tensor: those of bare and composite axes, unless they are whole."""
    return {
        term.name: (number, weight, sizes[term.name])
        for number, axis in enumerate(axes)
        if (axis.kind == "composite" or axis.name is not None) and all(name in sizes for name in axis.names)
        for term, weight in zip(axis.terms, weights(axis, sizes), strict=True)
    }


def read_by(axis: Axis, at: Mapping[str, Digit], sizes: Mapping[str, int]) -> Reading | None:
    """What an axis says of itself: the cells of it that a tensor reads whose dimensions stand at `at`.

    Returns:
      The reading; None where it has too many forms to be listed.
    """
    parts: _Parts = {}
    for term, weight in zip(axis.terms, weights(axis, sizes), strict=True):
        _add(parts, (term.name, 1, sizes[term.name]), weight)
    return _listed(parts, axis.offset, at)


def read_through(
    reading: Reading,
    axes: Sequence[Axis],
    shape: Sequence[int],
    at: Mapping[str, Digit],
    sizes: Mapping[str, int],
    cells: int | None = None,
) -> Reading | str:
    """What a result reads of an axis, from what the operand reads of it.

    Args:
      reading: of the operand.
      axes: of the operand, in the signature of the operation.
      shape: of the operand.
      at: where the dimensions stand in the result; those that do not were folded, or are read in full.
      sizes: of the dimensions.
      cells: how many the axis has that is read; None where no boundary answers.

    Returns:
      The reading of the result, or why it cannot be told.
    """
    found: set[Form] = set()
    for digits, offset in reading:
        parts: _Parts = {}
        for (number, divisor, count), coefficient in digits:
            axis = axes[number]
            if axis.whole_name is not None:
                return f"takes `{axis}` whole"
            low, high = axis_extent(axis, sizes)
            beyond = low < 0 or high > shape[number]
            if cells is not None and beyond and reading != itself(number, cells):
                return f"reads what a boundary answers within the tensor, at `{axis}`"
            listed = _digit_of(axis, divisor, count, shape[number], sizes)
            if listed is None:
                return f"cuts through what was put together, at `{axis}`"
            for part, times in listed:
                _add(parts, part, coefficient * times)
            offset += coefficient * axis.offset
        forms = _listed(parts, offset, at)
        if forms is None or len(found | forms) > MOST_FORMS:
            return "reads too many to list them"
        found |= forms
    return frozenset(found)


def lies_so(
    read: Callable[[Mapping[str, Any]], Any],
    axis: Axis,
    beside: Iterable[str],
    at: Mapping[str, Digit],
    sizes: Mapping[str, int],
    seed: int = 0,
) -> bool | None:
    """Whether cells may lie along an axis as its dimensions say: which index of each is read is up to none beside it.

    It is looked at some positions. Where `(h d)` is said of what lies as `(d h)`, the index that would be of `h` is up
    to both.

    Args:
      read: from indices of `ASKED` cells of a result, by dimension, to the cells of the axis that they read: `NOWHERE`
        for those that read none. None where nobody can tell.
      axis: a bare or composite one of an operand.
      beside: the dimensions that an index may not be up to, but for its own.
      at: where dimensions stand in the result.
      sizes: of the dimensions of the axis.
      seed: of the positions.
    """
    source = np.random.default_rng(seed)
    indices, others = ({name: source.integers(0, size, ASKED) for name, (_, _, size) in at.items()} for _ in "ab")
    if (found := read(indices)) is None:
        return None
    steps, beside = list(zip(axis.terms, weights(axis, sizes), strict=True)), [each for each in beside if each in at]
    for other in beside:
        moved = read({**indices, other: others[other]})
        if moved is None:
            return None
        both = (found != NOWHERE) & (moved != NOWHERE)
        apart = [(term.name, step) for term, step in steps if term.name != other]
        if any((found // step % sizes[name] != moved // step % sizes[name])[both].any() for name, step in apart):
            return False
    return True


def position(form: Form, at: Mapping[str, Digit], indices: Mapping[str, Any]) -> Any:
    """Which cells are read by those that have some indices.

    Args:
      form: by which they read.
      at: where the dimensions stand.
      indices: of `ASKED` cells, by dimension.
    """
    digits, offset = form
    total: Any = np.full(ASKED, offset)
    for (axis, divisor, count), coefficient in digits:
        total = total + coefficient * (along(axis, at, indices) // divisor % count)
    return total


def along(axis: int, at: Mapping[str, Digit], indices: Mapping[str, Any]) -> Any:
    """Where cells of some indices lie along an axis of the tensor that has the dimensions `at` these places."""
    return sum((indices[name] * weight for name, (own, weight, _) in at.items() if own == axis), np.zeros(1, int))


def spelt_reading(reading: Reading, at: Mapping[str, Digit], most: int = 3) -> str:
    """The forms as a signature would write them: `2*a`, `2*a+1`."""
    names = {digit: name for name, digit in at.items()}
    listed = sorted(reading, key=lambda form: (form[0], form[1]))
    return ", ".join(f"`{_spelt_form(form, names)}`" for form in listed[:most]) + ", ..." * (len(listed) > most)


def _spelt_form(form: Form, names: Mapping[Digit, str]) -> str:
    digits, offset = form
    text = ""
    for digit, coefficient in digits:
        axis, divisor, count = digit
        name = names.get(digit, f"axis {axis} // {divisor} % {count}")
        text += f"{'-' if coefficient < 0 else '+'}{'' if abs(coefficient) == 1 else f'{abs(coefficient)}*'}{name}"
    return (text + (f"{offset:+d}" if offset else "")).removeprefix("+") or "0"


def weights(axis: Axis, sizes: Mapping[str, int]) -> list[int]:
    """How many cells one step along each dimension of an axis goes.

    Args:
      axis: that is not whole.
      sizes: of its dimensions.
    """
    if axis.kind != "composite":
        return [term.coefficient for term in axis.terms]
    counts = [sizes[term.name] for term in axis.terms]
    return [prod(counts[number + 1 :]) for number in range(len(counts))]


def _digit_of(
    axis: Axis, divisor: int, count: int, size: int, sizes: Mapping[str, int]
) -> list[tuple[tuple[str, int, int], int]] | None:
    """A digit of the position along an axis by digits of its dimensions, without its offset; None where it is none."""
    steps = zip(axis.terms, weights(axis, sizes), strict=True)
    if axis.is_window:
        whole = divisor == 1 and count == size
        return [((term.name, 1, sizes[term.name]), weight) for term, weight in steps] if whole else None
    found: list[tuple[tuple[str, int, int], int]] = []
    for term, weight in steps:
        low, high = max(weight, divisor), min(weight * sizes[term.name], divisor * count)
        if weight >= divisor * count and weight % (divisor * count) and sizes[term.name] > 1:
            return None  # its steps are no whole turns of the digit
        if low < high:
            if low % weight or low % divisor or high % low:
                return None
            found.append(((term.name, low // weight, high // low), low // divisor))
    return found if prod(values for (_, _, values), _ in found) == count else None


def _add(parts: _Parts, part: tuple[str, int, int], coefficient: int) -> None:
    parts[part] = parts.get(part, 0) + coefficient


def _listed(parts: _Parts, offset: int, at: Mapping[str, Digit]) -> Reading | None:
    """The forms of a sum of digits of dimensions: one for each value of those that do not stand in the tensor."""
    kept: dict[Digit, int] = {}
    offsets = {offset}
    for (name, divisor, count), coefficient in parts.items():
        if name in at:
            axis, weight, _ = at[name]
            digit = axis, weight * divisor, count
            kept[digit] = kept.get(digit, 0) + coefficient
        elif coefficient and count * len(offsets) > 16 * MOST_FORMS:
            return None
        elif coefficient:
            offsets = {start + coefficient * step for start, step in product(offsets, range(count))}
    digits = _merged(kept)
    return frozenset((digits, start) for start in offsets)


def _merged(kept: Mapping[Digit, int]) -> tuple[tuple[Digit, int], ...]:
    """Digits in order, those that are one longer digit together as this one."""
    merged: list[tuple[Digit, int]] = []
    for (axis, divisor, count), coefficient in _in_order(kept):
        if merged:
            (before, low, values), times = merged[-1]
            if before == axis and divisor == low * values and coefficient == times * values:
                merged[-1] = (axis, low, values * count), times
                continue
        merged.append(((axis, divisor, count), coefficient))
    return tuple(merged)


def _in_order(kept: Mapping[Digit, int]) -> Iterable[tuple[Digit, int]]:
    """Digits that tell something: those of one value are 0."""
    return sorted((digit, coefficient) for digit, coefficient in kept.items() if coefficient and digit[2] != 1)
