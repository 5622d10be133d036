"""Kernels that read how many cells their block has: run on the whole and on a box, which must come to the same.

Python's own branches leave no trace in a program: `x * 2 if len(x) > 4 else x` is one program on eight cells and
another on two, and neither mixes any. So where the program of a box differs from that of the whole by more than sizes,
or does not say of itself that boxes come to the whole (`settled`), both are run on a few numbers. Other ways to the
same result are fine; what rounding may have done is measured by operands that are moved a little. A kernel is refused
only by numbers that differ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.declared.compared import differ, rounds, tolerances
from combinators.declared.drawn import drawn, is_key, moved, planted, scaled, stay
from combinators.declared.preconditions import looks_for_infinities
from combinators.declared.programs import alike_but_sizes
from combinators.declared.runnable import INTERPRETED, RaisesError, apart, is_large, raising, ways
from combinators.equations.effort import Effort
from combinators.equations.evaluate import evaluator
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis
from combinators.index_space.extent import axis_extent, axis_size
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.kernels.jaxprs import as_function

# A fold is put together of so many boxes; of two parts where there are more.
_MOST_PIECES = 16
# What all runs in NumPy may take, in small equations: some seconds.
_EFFORT = 1 << 18
# Of fewer numbers than these more are drawn, so often at most.
_FEW, _ROUNDS = 8, 4
_SCALES = (10_000, 1e-3)

Sizes = dict[str, int]


@dataclass(frozen=True)
class Boxed:
    """A kernel, and how what it gives of boxes is put together.

    Attributes:
      signature: of the kernel, without an ellipsis.
      sizes: of its dimensions.
      shown: for every leaf of what is compared its axes, or the dimensions along them.
      merge: two states, the left one first, to one; None where no cut dimension is folded.
      show: what the kernel gives, merged, to what is compared.
      at: gives the closed jaxpr of the kernel on blocks of some sizes; None where it does not take them.
    """

    signature: Signature
    sizes: Mapping[str, int]
    shown: Sequence[Sequence[Axis | str]]
    merge: Callable[[list[Any], list[Any]], list[Any]] | None
    show: Callable[[list[Any]], list[Any]]
    at: Callable[[Sizes], Any]


def differs(
    kernel: Boxed, box: Mapping[str, int], *, counts: bool, settled: Callable[[Any, Collection[str]], bool]
) -> bool:
    """Whether a kernel is known to compute something else on a box than on the whole.

    Args:
      kernel: on all of its cells.
      box: the sizes of a part of its index space, no greater than the whole.
      counts: whether its code may learn how many cells its block has.
      settled: whether a program says of itself that boxes come to the whole, along some dimensions.
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
    sizes, part = dict(kernel.sizes), dict(box)
    if is_large(program):
        # What is not cut has few cells, where all of it would be much.
        few = {dim: min(sizes[dim], 2) for dim in plain(kernel.signature) - set(cut)}
        sizes, part = {**sizes, **few}, {**part, **few}
    few_cells = _of_few_cells(kernel, program, sizes, part)
    return any(_parts_differ(kernel, *each) for each in ((sizes, part), *few_cells))


def _of_few_cells(kernel: Boxed, program: Any, sizes: Sizes, box: Sizes) -> Iterator[tuple[Sizes, Sizes]]:
    """Of a fold with sums of few bits boxes of so few cells that rounding does not hide what it does."""
    cut = [dim for dim in kernel.signature.fold_dims if box[dim] != sizes[dim]] if kernel.merge is not None else []
    if cut and rounds(program) and math.prod(sizes[dim] for dim in cut) > _FEW:
        few = {dim: min(sizes[dim], _FEW if dim == cut[0] else 1) for dim in cut}
        yield {**sizes, **few}, {**box, **{dim: min(box[dim], -(-size // 2)) for dim, size in few.items()}}


def _parts_differ(kernel: Boxed, sizes: Sizes, box: Sizes) -> bool:
    found = parts_of(kernel, sizes, box)
    # Of many cells sums of few bits are other numbers in each order.
    if found is None or (found.folded > _FEW and found.rounds):
        return False
    for way in found.ways:
        try:
            with apart(), np.errstate(all="ignore"):
                return _differ(kernel, found, way)
        except RaisesError:
            continue
    return False


def plain(signature: Signature) -> set[str]:
    """The dimensions that are folded or mapped, and an axis of their own wherever they stand."""
    axes = [axis for tensor in (*signature.operands, *signature.results) for axis in tensor.axes]
    return {*signature.fold_dims, *signature.map_dims} - {
        name for axis in axes if axis.name is None for name in axis.names
    }


@dataclass(frozen=True, eq=False)
class Parts:
    """What is run of a kernel: all of its cells, and the boxes that are put together.

    Attributes:
      sizes: of the whole.
      box: sizes of the first part.
      mapped: the dimensions that are cut and not folded.
      places: for every part where it begins along the dimensions that are folded.
      boxes: the sizes of every part.
      programs: by sizes, in the order of the dimensions, closed jaxprs of the kernel.
      joined: by numbers of parts, closed jaxprs of what makes their states what is compared; none of what is mapped.
    """

    sizes: Sizes
    box: Sizes
    mapped: Sequence[str]
    places: Sequence[Mapping[str, int]]
    boxes: Sequence[Sizes]
    programs: Mapping[tuple[int, ...], Any]
    joined: Mapping[int, Any]

    @cached_property
    def corners(self) -> list[dict[str, int]]:
        """Where the first box begins along what is cut and not folded, and the last."""
        both = (False, True) if self.mapped else (False,)
        return [{dim: (self.sizes[dim] - self.box[dim]) * last for dim in self.mapped} for last in both]

    def blocks(self, kernel: Boxed, arrays: Sequence[Any], corner: Mapping[str, int]) -> list[list[Any]]:
        """What each part reads of the operands."""
        return [
            [
                array[slices(operand_axes(operand), {**corner, **place}, box, self.sizes, array)]
                for operand, array in zip(kernel.signature.operands, arrays, strict=True)
            ]
            for place, box in zip(self.places, self.boxes, strict=True)
        ]

    @cached_property
    def folded(self) -> int:
        """How many cells of what is cut are added up."""
        return math.prod(self.sizes[dim] for dim in self.places[0])

    @cached_property
    def rounds(self) -> bool:
        """Whether something in it is of few bits."""
        return any(map(rounds, (*self.programs.values(), *self.joined.values())))

    @cached_property
    def tolerances(self) -> Mapping[int, float]:
        """What rounding may do to results, by the bits of each."""
        return tolerances((*self.programs.values(), *self.joined.values()))

    @cached_property
    def ways(self) -> list[str]:
        """How all of it can be run."""
        return ways([*self.programs.values(), *self.joined.values()])

    def runs(self, way: str, effort: Effort) -> Callable[[Sequence[Sizes], Sequence[Sequence[Any]]], list[Any]]:
        """What gives what is compared of parts of some sizes and their blocks."""
        kernels = {sizes: runner(program, way, effort) for sizes, program in self.programs.items()}
        joins = {number: runner(program, way, effort) for number, program in self.joined.items()}

        def run(sizes: Sequence[Sizes], blocks: Sequence[Sequence[Any]]) -> list[Any]:
            states = [kernels[tuple(each.values())](block) for each, block in zip(sizes, blocks, strict=True)]
            return joins[len(states)](list(itertools.chain(*states))) if joins else states[0]

        return run


def runner(program: Any, way: str, effort: Effort) -> Callable[[Sequence[Any]], list[Any]]:
    """What runs a closed jaxpr on arrays in one of its `ways`; in NumPy as long as some `effort` is left.

    Whatever the program raises it raises as `RaisesError`.
    """
    with raising():
        function = evaluator(program, effort) if way == INTERPRETED else jax.jit(as_function(program))

    def run(arrays: Sequence[Any]) -> list[Any]:
        with raising():
            # What is computed later would raise where it is compared.
            return function(arrays) if way == INTERPRETED else jax.block_until_ready(list(function(*arrays)))

    return run


def parts_of(kernel: Boxed, sizes: Sizes, box: Sizes) -> Parts | None:
    """What is run; None where shapes alone refuse the kernel, or nothing can be traced."""
    folds = [dim for dim in kernel.signature.fold_dims if box[dim] != sizes[dim]] if kernel.merge is not None else []
    mapped = [dim for dim in box if box[dim] != sizes[dim] and dim not in folds]
    pieces = [dict(zip(folds, each, strict=True)) for each in itertools.product(*_covers(folds, sizes, box))]
    boxes = [{**box, **{dim: size for dim, (_, size) in piece.items()}} for piece in pieces]
    programs = {tuple(each.values()): kernel.at(each) for each in (sizes, *boxes)}
    if None in programs.values():
        return None
    if len({tuple(len(aval.shape) for aval in each.out_avals) for each in programs.values()}) > 1:
        return None  # refused by its shapes, where it is run
    places = [{dim: low for dim, (low, _) in piece.items()} for piece in pieces]
    joins: dict[int, Any] = {}
    if kernel.merge is not None:
        states = [programs[tuple(each.values())].out_avals for each in boxes]
        for number, listed in ((1, [programs[tuple(sizes.values())].out_avals]), (len(boxes), states)):
            joins[number] = joined(kernel, listed)
        if None in joins.values():
            return None
    return Parts(sizes, box, mapped, places, boxes, programs, joins)


def joined(kernel: Boxed, states: Sequence[Sequence[Any]]) -> Any:
    """The closed jaxpr from the leaves of states to what is compared; None where a monoid raises."""
    structs = [[jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in state] for state in states]

    def join(*leaves: Any) -> list[Any]:
        left = iter(leaves)
        parts = [list(itertools.islice(left, len(state))) for state in states]
        return list(kernel.show(parts[0] if kernel.merge is None else reduce(kernel.merge, parts)))

    try:
        return jax.make_jaxpr(join)(*itertools.chain(*structs))
    except Exception:  # noqa: BLE001 - a monoid may raise in any way, which is told where it runs
        return None


def _differ(kernel: Boxed, parts: Parts, way: str) -> bool:
    sizes = parts.sizes
    run = parts.runs(way, Effort(_EFFORT))
    asked = parts.programs[tuple(sizes.values())]
    # Of two parts that give one number chance alone may make that equal.
    told = min((math.prod(aval.shape) for aval in asked.out_avals), default=1) * max(1, len(parts.boxes) - 1)
    for arrays in _draws(kernel, asked, sizes, min(_ROUNDS, -(-_FEW // max(1, told)))):
        whole = [run([sizes], [given]) for given in (arrays, list(map(moved, arrays)))]
        if any(_corner_differs(kernel, parts, run, arrays, whole, corner) for corner in parts.corners):
            return True
    return False


def _draws(kernel: Boxed, program: Any, sizes: Sizes, rounds: int) -> Iterator[list[Any]]:
    """Operands of a few units, then of more and of less: sums may stop, or be nothing, at some number.

    Where a kernel looks for what is not finite, some of them are not.
    """
    yield from drawn(kernel.signature, program, sizes, rounds)
    fixed = stay(kernel.signature, program)
    for scale in _SCALES:
        for arrays in drawn(kernel.signature, program, sizes):
            yield [scaled(array, 1 if still else scale) for array, still in zip(arrays, fixed, strict=True)]
    if looks_for_infinities(program):
        for arrays, number in itertools.product(drawn(kernel.signature, program, sizes), (np.nan, np.inf, -np.inf)):
            yield [array if still else planted(array, number) for array, still in zip(arrays, fixed, strict=True)]


def _corner_differs(
    kernel: Boxed, parts: Parts, run: Any, arrays: Sequence[Any], whole: Sequence[Any], corner: Mapping[str, int]
) -> bool:
    """Whether what the boxes of a corner come to is something else there than `whole`, and what it is when moved."""

    def found(given: Sequence[Any]) -> list[Any]:
        return run(parts.boxes, parts.blocks(kernel, given, corner))

    def again(way: int) -> list[Any]:
        return found([moved(array, way) for array in arrays])

    one, near = (
        [
            leaf[slices(axes, corner, parts.box, parts.sizes, leaf)]
            for axes, leaf in zip(kernel.shown, leaves, strict=True)
        ]
        for leaves in whole
    )
    exact = not any(jnp.issubdtype(array.dtype, jnp.inexact) or is_key(array.dtype) for array in arrays)
    return differ(one, found(arrays), near, again, exact, parts.tolerances)


def _covers(folds: Sequence[str], sizes: Sizes, box: Sizes) -> list[list[tuple[int, int]]]:
    """For every dimension that is folded the first cells and the sizes of the boxes along it."""
    many = math.prod(-(-sizes[dim] // box[dim]) for dim in folds) > _MOST_PIECES
    steps = {dim: max(box[dim], sizes[dim] - box[dim]) if many else box[dim] for dim in folds}
    covers: list[list[tuple[int, int]]] = []
    for dim in folds:
        lows = [0, box[dim]] if many else range(0, sizes[dim], box[dim])
        covers.append([(low, min(steps[dim] if low else box[dim], sizes[dim] - low)) for low in lows])
    return covers


def operand_axes(operand: Operand) -> Sequence[Axis | str]:
    """The axes of an operand, or the dimension whose coordinates it is."""
    return [operand.coordinate] if operand.coordinate is not None else operand.axes


def slices(
    axes: Sequence[Axis | str], places: Mapping[str, int], box: Sizes, sizes: Sizes, array: Any
) -> tuple[slice, ...]:
    """What a box that begins at some places is of an array that holds the whole."""
    return tuple(_slice(axis, places, box, sizes, size) for axis, size in zip(axes, array.shape, strict=True))


def _slice(axis: Axis | str, places: Mapping[str, int], box: Sizes, sizes: Sizes, size: int) -> slice:
    if isinstance(axis, str):
        low = places.get(axis, 0)
        return slice(low, low + box.get(axis, size))
    if axis.is_window:
        start, stop = axis_extent(axis, box)
        moved = sum(term.coefficient * places.get(term.name, 0) for term in axis.terms) - axis_extent(axis, sizes)[0]
        return slice(start + moved, stop + moved)
    # Cells that a monoid adds to what the signature names, such as bins, are no dimension of the index space.
    if not box.keys() >= set(axis.names):
        return slice(0, size)
    # Of a composition the outermost alone is cut.
    low = places.get(axis.names[0], 0) * math.prod(sizes[name] for name in axis.names[1:]) if axis.names else 0
    return slice(low, low + axis_size(axis, box))
