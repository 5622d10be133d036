"""Kernels that read how many cells their block has: run on the whole and on a box, which must come to the same.

Python's own branches leave no trace in a program: `x * 2 if len(x) > 4 else x` is one program on eight cells and
another on two, and neither mixes any. So where the program of a box differs from that of the whole by more than sizes,
or does not say of itself that boxes come to the whole (`settled`), both are run on a few numbers. Other ways to the
same result are fine; what rounding may have done is measured by operands that are moved a little. A kernel is refused
only by numbers that differ.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.choosing.choices import UNTOLD, Choices, Found
from combinators.choosing.edges import edges
from combinators.claims.cut import Boxed, Parts, Sizes, parts_of, slices
from combinators.claims.draws import draws, turns, ways_of
from combinators.claims.fewer import asked_at
from combinators.declared.compared import are_ordinary, differ, rounds
from combinators.declared.drawn import is_key, moved
from combinators.declared.programs import alike_but_sizes
from combinators.declared.runnable import INTERPRETED, RaisesError, apart
from combinators.equations.effort import Effort
from combinators.index_space.signature import Signature

# What all runs in NumPy may take, in small equations: some seconds.
_EFFORT = 1 << 18
# A fold with sums of few bits is asked of so many cells.
_FEW = 8
# One draw may take such a part of what is left: a loop that some numbers keep going leaves something to the others.
_SHARES = 4


def differs(
    kernel: Boxed, box: Mapping[str, int], *, counts: bool, settled: Callable[[Any, Collection[str]], bool]
) -> bool | str:
    """Whether a kernel is known to compute something else on a box than on the whole.

    Args:
      kernel: on all of its cells.
      box: the sizes of a part of its index space, no greater than the whole.
      counts: whether its code may learn how many cells its block has.
      settled: whether a program says of itself that boxes come to the whole, along some dimensions.

    Returns:
      `UNTOLD` where they came to the same, and cells that are cut chose alike of all that was drawn.
    """
    cut = [dim for dim, size in kernel.sizes.items() if box[dim] != size]
    if not cut or not all(0 < box[dim] <= kernel.sizes[dim] for dim in kernel.sizes):
        return False
    program = kernel.at(dict(kernel.sizes))
    if program is None:
        return False
    if settled(program, cut):
        other = kernel.at(dict(box)) if counts else None
        if other is None or alike_but_sizes(program, other):
            return False
    found = (_parts_differ(kernel, parts) for asked in asked_at(kernel, box) for parts in _and_few(kernel, asked))
    untold = False
    for each in found:
        if each is True:
            return True
        untold = untold or bool(each)
    return UNTOLD if untold else False


def _and_few(kernel: Boxed, parts: Parts) -> Iterator[Parts]:
    yield parts
    for sizes, box in _of_few_cells(kernel, parts.programs[tuple(parts.sizes.values())], parts.sizes, parts.box):
        if (few := parts_of(kernel, sizes, box)) is not None:
            yield few


def _of_few_cells(kernel: Boxed, program: Any, sizes: Sizes, box: Sizes) -> Iterator[tuple[Sizes, Sizes]]:
    """Of a fold with sums of few bits boxes of so few cells that rounding does not hide what it does."""
    cut = [dim for dim in kernel.signature.fold_dims if box[dim] != sizes[dim]] if kernel.merge is not None else []
    if cut and rounds(program) and math.prod(sizes[dim] for dim in cut) > _FEW:
        few = {dim: min(sizes[dim], _FEW if dim == cut[0] else 1) for dim in cut}
        yield {**sizes, **few}, {**box, **{dim: min(box[dim], -(-size // 2)) for dim, size in few.items()}}


def _parts_differ(kernel: Boxed, parts: Parts) -> bool | str:
    # Of many cells sums of few bits are other numbers in each order.
    if parts.folded > _FEW and parts.rounds:
        return False
    # What data choose is seen in NumPy alone.
    choices = parts.choices(kernel)
    watched = not choices.are_none or any(map(turns, parts.programs.values()))
    for way in sorted(parts.ways, key=INTERPRETED.__ne__) if watched else parts.ways:
        try:
            with apart(), np.errstate(all="ignore"):
                return _differ(kernel, parts, way, choices)
        except RaisesError:
            continue
    return False


def _differ(kernel: Boxed, parts: Parts, way: str, choices: Choices) -> bool | str:
    """Whether some draw tells that they differ, and whether one could.

    Raises:
      RaisesError: where none could be run.
    """
    sizes, effort, ran = parts.sizes, Effort(_EFFORT), False
    run = parts.runs(way, effort, choices)
    ends, between = parts.corners[:2], parts.corners[2:]
    asked = itertools.chain(
        draws(kernel.signature, parts, effort, chooses=not choices.are_none),
        _at_edges(kernel.signature, parts, run, choices, effort),
    )
    for number, (arrays, move) in enumerate(asked):
        effort.begin(effort.left // _SHARES)
        try:
            whole = [run([sizes], [given]) for given in (arrays, list(map(move, arrays)))]
            chosen, near = choices.taken()
            if any(_corner_differs(kernel, parts, run, arrays, whole, corner, move) for corner in ends):
                return True
            ran = True
            # All others once, as a place of the block may lie in any (`x.at[4].set(0)`), then one by one.
            others = between[number % len(between) :][:1] if number and between else between
            if any(_corner_differs(kernel, parts, run, arrays, whole, corner, move) for corner in others):
                return True
            boxes = choices.taken()
            choices.compare(chosen, near, boxes, ordinary=are_ordinary(whole[0]))
        except RaisesError:  # of these numbers nothing is known, such as of a loop that they keep going
            choices.taken()  # what was seen until then
    if not ran:
        raise RaisesError
    return False if choices.are_told else UNTOLD


def _at_edges(
    signature: Signature, parts: Parts, run: Any, choices: Choices, effort: Effort
) -> Iterator[tuple[list[Any], Any]]:
    """Operands of which what is chosen together turns, and how they are moved."""

    def chosen(arrays: list[Any]) -> Found:
        run([parts.sizes], [arrays])
        return choices.taken()[-1]

    for steps, at in () if choices.are_none else ways_of(signature, parts):
        effort.begin(effort.left // _SHARES)
        with contextlib.suppress(RaisesError):  # of what is raised nothing is known
            for arrays in edges(steps, at, chosen):
                yield arrays, moved
        choices.taken()


def _corner_differs(
    kernel: Boxed,
    parts: Parts,
    run: Any,
    arrays: Sequence[Any],
    whole: Sequence[Any],
    corner: Mapping[str, int],
    move: Callable[..., Any],
) -> bool:
    """Whether what the boxes of a corner come to is something else there than `whole`, and what it is when moved."""

    def found(given: Sequence[Any]) -> list[Any]:
        return run(parts.boxes, parts.blocks(kernel, given, corner))

    def again(way: int) -> list[Any]:
        return found([move(array, way) for array in arrays])

    one, near = (
        [
            leaf[slices(axes, corner, parts.box, parts.sizes, leaf)]
            for axes, leaf in zip(kernel.shown, leaves, strict=True)
        ]
        for leaves in whole
    )
    exact = not any(jnp.issubdtype(array.dtype, jnp.inexact) or is_key(array.dtype) for array in arrays)
    return differ(one, found(arrays), near, again, exact, parts.tolerances)
