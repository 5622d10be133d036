"""Declared neutral values: a kernel is run on cells alone, and with cells more that hold them and must change nothing.

A plan fills what is padded with them, and runs the kernel once for blocks of any number of cells. Of `pad=0` for a
maximum that is false, and no program says so of itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from combinators.claims.cut import Boxed, joined
from combinators.claims.fewer import few_of
from combinators.claims.running import told
from combinators.claims.slopes import pullback, sloped
from combinators.declared.compared import CLOSE, differ, tolerances
from combinators.declared.drawn import are_whole, drawn, moved, scaled, stay
from combinators.declared.runnable import is_large
from combinators.frozen import dataclass

# Behind numbers of either sign and of this size a neutral value must be one as well: an extremum may be far from 0.
_SCALES = (1, 10_000)

Sizes = dict[str, int]
Values = Sequence[float | int | None]


def changes(kernel: Boxed, values: Values, dims: Collection[str], box: Mapping[str, int]) -> bool:
    """Whether a kernel is known to give something else where cells that hold declared values follow its own.

    Args:
      kernel: a fold.
      values: for every operand of the signature what it is filled with along `dims`; None where it is not.
      dims: dimensions that are folded, and an axis of their own in every operand.
      box: the sizes of what a device holds.
    """
    return _asked(_changed_by, kernel, values, dims, box)


def gives_no_identity(kernel: Boxed, values: Values, dims: Collection[str], box: Mapping[str, int]) -> bool:
    """Whether what a kernel gives of such cells alone is known to change a state beside it; as `changes`."""
    return _asked(_merges_into, kernel, values, dims, box)


def turns_slopes(kernel: Boxed, values: Values, dims: Collection[str], box: Mapping[str, int]) -> bool:
    """Whether slopes at cells are known to be others beside such cells, as beside `sqrt` of 0; as `changes`."""
    return _asked(_pulls_otherwise, kernel, values, dims, box)


@dataclass(frozen=True)
class _Case:
    """Sizes of the cells alone, and of them and those that are filled; programs of the kernel for both."""

    kernel: Boxed
    values: Values
    cells: Sizes
    filled: Sizes
    alone: Any
    beside: Any


class _Draw(NamedTuple):
    """Blocks of cells, nearly the same ones, filled ones, and such as are filled with nothing else."""

    cells: list[Any]
    near: list[Any]
    filled: list[Any]
    nothing: list[Any]
    exact: bool
    allowed: Mapping[int, float]


Moving = Callable[[Sequence[Any]], list[Any]]
Found = Callable[[Moving], list[Any]]
"""What comes of operands that are moved in some way."""

Question = Callable[[_Case], "Asked | None"]


@dataclass(frozen=True)
class Asked:
    """Closed jaxprs that are run, and what with their runs tells what differs for one draw."""

    programs: Sequence[Any]
    compare: Callable[[Sequence[Callable[[Sequence[Any]], list[Any]]], _Draw], bool]


def _asked(question: Question, kernel: Boxed, values: Values, dims: Collection[str], box: Mapping[str, int]) -> bool:
    return any(_answer(question, case) for case in _cases(kernel, values, dims, box))


def _cases(kernel: Boxed, values: Values, dims: Collection[str], box: Mapping[str, int]) -> Iterator[_Case]:
    """A few cells and one more; then as many as a device holds, if they are not too many to be run."""
    few = few_of(kernel)
    held = {**kernel.sizes, **box}
    pairs = [(few, {**few, **{dim: few[dim] + 1 for dim in cut}}) for cut in ([dim] for dim in dims)]
    if len(dims) > 1:
        pairs.append((few, {**few, **{dim: few[dim] + 1 for dim in dims}}))
    less = {dim: held[dim] - 1 for dim in dims if held[dim] > 1}
    pairs += [({**held, **less}, held)] if less else []
    for cells, filled in pairs:
        alone, beside = kernel.at(cells), kernel.at(filled)
        if alone is not None and beside is not None and not is_large(beside):
            yield _Case(kernel, values, cells, filled, alone, beside)


def _answer(question: Question, case: _Case) -> bool:
    asked = question(case)
    if asked is None:
        return False
    return told(asked.programs, lambda runs: (asked.compare(runs, draw) for draw in _draws(case)))


def _draws(case: _Case) -> Iterator[_Draw]:
    drawings = drawn(case.kernel.signature, case.beside, case.filled)
    fixed = stay(case.kernel.signature, case.beside)
    allowed = tolerances((case.alone, case.beside), CLOSE)
    for arrays, scale, sign in itertools.product(drawings, _SCALES, (1, -1)):
        given = [scaled(array, 1 if still else scale * sign) for array, still in zip(arrays, fixed, strict=True)]
        cells = [_part(case, number, array) for number, array in enumerate(given)]
        filled, nothing = (
            [_filled(case, number, array, all_of=all_of) for number, array in enumerate(given)]
            for all_of in (False, True)
        )
        yield _Draw(cells, list(map(moved, cells)), filled, nothing, are_whole(given), allowed)


def _changed_by(case: _Case) -> Asked:
    states = [case.alone.out_avals, case.beside.out_avals]

    def compare(runs: Any, draw: _Draw) -> bool:
        alone, beside, show, show_filled = runs
        expected, near = show(alone(draw.cells)), show(alone(draw.near))
        return _differ(
            expected, near, lambda moving: show_filled(beside(moving(draw.filled))), draw.exact, draw.allowed
        )

    return Asked([case.alone, case.beside, *(joined(case.kernel, [state]) for state in states)], compare)


def _merges_into(case: _Case) -> Asked:
    states = [case.alone.out_avals, case.beside.out_avals]

    def compare(runs: Any, draw: _Draw) -> bool:
        alone, beside, show, merge, merge_before = runs
        nothing = beside(draw.nothing)
        expected, near = show(alone(draw.cells)), show(alone(draw.near))
        merged: list[Found] = [
            lambda moving: merge([*alone(moving(draw.cells)), *nothing]),
            lambda moving: merge_before([*nothing, *alone(moving(draw.cells))]),
        ]
        return any(_differ(expected, near, each, draw.exact, draw.allowed) for each in merged)

    merges = [joined(case.kernel, each) for each in (states[:1], states, states[::-1])]
    return Asked([case.alone, case.beside, *merges], compare)


def _pulls_otherwise(case: _Case) -> Asked | None:
    programs = [pullback(case.alone), pullback(case.beside)]
    if None in programs:
        return None  # no derivative, which cannot be another one
    floats = sloped(case.alone)

    def compare(runs: Any, draw: _Draw) -> bool:
        alone, beside = runs

        def found(moving: Moving) -> list[Any]:
            slopes = beside(moving(draw.filled))
            return [_part(case, number, slope) for number, slope in zip(floats, slopes, strict=True)]

        return _differ(alone(draw.cells), alone(draw.near), found, exact=False, allowed=draw.allowed)

    return Asked(programs, compare)


def _differ(
    expected: Sequence[Any], near: Sequence[Any], found: Found, exact: bool, allowed: Mapping[int, float]
) -> bool:
    def again(way: int) -> list[Any]:
        return found(lambda arrays: [moved(array, way) for array in arrays])

    return differ(expected, found(list), near, again, exact, allowed, finite=True)


def _spans(case: _Case, number: int) -> list[int]:
    """How many cells each axis of an operand has where none is filled; -1 for one that is not filled."""
    operand = case.kernel.signature.operands[number]
    names = [operand.coordinate] if operand.coordinate is not None else [axis.name for axis in operand.axes]
    return [case.cells[name] if name is not None and case.cells[name] != case.filled[name] else -1 for name in names]


def _part(case: _Case, number: int, array: Any) -> Any:
    return array[tuple(slice(None if count < 0 else count) for count in _spans(case, number))]


def _filled(case: _Case, number: int, array: Any, *, all_of: bool) -> Any:
    """An operand as devices hold it: behind its cells the declared value, or the last cell and coordinate again."""
    spans, value = _spans(case, number), case.values[number]
    for axis, count in enumerate(spans):
        if count < 0:
            continue
        places = np.arange(array.shape[axis])
        last = np.minimum(places, max(count - 1, 0))
        if value is None:
            array = array[(*[slice(None)] * axis, last)]
            continue
        padded = (places >= (0 if all_of else count)).reshape([-1 if at == axis else 1 for at in range(array.ndim)])
        array = np.where(padded, np.asarray(value).astype(array.dtype), array)
    return array
