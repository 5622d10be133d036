"""Kernels that are cut: what is run of one on all of its cells and on boxes, which are put together again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import jax
import jax.numpy as jnp

from combinators.choosing.choices import Choices
from combinators.choosing.chosen import Cells
from combinators.claims.running import runner
from combinators.declared.compared import rounds, tolerances
from combinators.declared.flow import OTHER, Flow
from combinators.declared.runnable import ways
from combinators.equations.effort import Effort
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis
from combinators.index_space.extent import axis_extent, axis_size
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.kernels.jaxprs import as_function

# A fold is put together of so many boxes; of two parts where there are more.
_MOST_PIECES = 16
# So many boxes are held to the whole at once.
_MOST_BOXES = 1 << 10

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
      compares: whether what it compares is a choice of somebody else's code.
    """

    signature: Signature
    sizes: Mapping[str, int]
    shown: Sequence[Sequence[Axis | str]]
    merge: Callable[[list[Any], list[Any]], list[Any]] | None
    show: Callable[[list[Any]], list[Any]]
    at: Callable[[Sizes], Any]
    compares: bool = True


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
      share: of what may be run, how much this may take.
    """

    sizes: Sizes
    box: Sizes
    mapped: Sequence[str]
    places: Sequence[Mapping[str, int]]
    boxes: Sequence[Sizes]
    programs: Mapping[tuple[int, ...], Any]
    joined: Mapping[int, Any]
    share: float = 1

    @cached_property
    def corners(self) -> list[dict[str, int]]:
        """Where the first box begins along what is cut and not folded, and the last; then those between them."""
        ends = {dim: self.sizes[dim] - self.box[dim] for dim in self.mapped}
        found = [dict.fromkeys(ends, 0), ends] if ends else [{}]
        starts = [range(0, end + 1, self.box[dim]) for dim, end in ends.items()]
        # Of very many some, as far apart as each other.
        step = -(-math.prod(map(len, starts)) // _MOST_BOXES)
        between = itertools.islice(itertools.product(*starts), 0, None, step)
        return found + [each for place in between if (each := dict(zip(ends, place, strict=True))) not in found]

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
        return ways([*self.programs.values(), *self.joined.values()], self.share)

    def choices(self, kernel: Boxed) -> Choices:
        """What cells that are cut choose together; a coordinate is in each box what it is in the whole."""
        folds = self.cut - frozenset(self.mapped)
        made_of = [cells(operand, self.cut) for operand in kernel.signature.operands]
        programs = {sizes: (program, made_of) for sizes, program in self.programs.items()}
        return Choices(programs, list(self.sizes), folds, compares=kernel.compares)

    @property
    def cut(self) -> frozenset[str]:
        """The dimensions of which a box has fewer cells."""
        return frozenset(dim for dim, size in self.sizes.items() if self.box[dim] != size)

    def runs(
        self, way: str, effort: Effort, choices: Choices | None = None
    ) -> Callable[[Sequence[Sizes], Sequence[Sequence[Any]]], list[Any]]:
        """What gives what is compared of parts of some sizes and their blocks."""
        watch = None if choices is None else choices.watch
        kernels = {sizes: runner(program, way, effort, watch) for sizes, program in self.programs.items()}
        joins = {number: runner(program, way, effort) for number, program in self.joined.items()}

        def run(sizes: Sequence[Sizes], blocks: Sequence[Sequence[Any]]) -> list[Any]:
            states: list[list[Any]] = []
            for each, block in zip(sizes, blocks, strict=True):
                if choices is not None:
                    choices.begin()
                states.append(kernels[tuple(each.values())](block))
            return joins[len(states)](list(itertools.chain(*states))) if joins else states[0]

        return run


def cells(operand: Operand, cut: frozenset[str]) -> Cells:
    """Of which cells an operand is made; of composed axes it is not known how."""
    if operand.coordinate is not None:
        return Cells(frozenset(), Flow((None,)))
    return cells_along(operand.axes, cut)


def cells_along(axes: Sequence[Axis | str], cut: frozenset[str]) -> Cells:
    """Of which cells an array is made, by its axes, or the dimensions along them."""
    dims = cut.intersection(itertools.chain(*([axis] if isinstance(axis, str) else axis.names for axis in axes)))
    names = [axis if isinstance(axis, str) else axis.name for axis in axes]
    tags = [OTHER if name is None else name if name in cut else None for name in names]
    return Cells(dims, Flow(tuple(tags), lost=dims - {*names}))


def parts_of(kernel: Boxed, sizes: Sizes, box: Sizes, share: float = 1) -> Parts | None:
    """What is run, a share of what may be; None where shapes alone refuse the kernel, or nothing can be traced."""
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
    return Parts(sizes, box, mapped, places, boxes, programs, joins, share)


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


def joined_leaves(parts: Parts, sizes: Sequence[Mapping[str, int]], blocks: Sequence[Sequence[Any]]) -> list[Any]:
    """What is compared of parts of some sizes and their blocks."""
    states = [
        as_function(parts.programs[tuple(each.values())])(*block) for each, block in zip(sizes, blocks, strict=True)
    ]
    found = as_function(parts.joined[len(states)])(*itertools.chain(*states)) if parts.joined else states[0]
    # A program that gives plain numbers gives them as they are.
    return list(map(jnp.asarray, found))


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
