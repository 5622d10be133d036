"""Axes that are merged to one and split again, such as batch and heads, stay apart in between, with their names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.lifting.finding.product import is_product
from tapestry_jax.lifting.kernels.cells import Program
from tapestry_jax.lifting.kernels.primitives import Bound
from tapestry_jax.lifting.kernels.products import Products
from tapestry_jax.lifting.kernels.reshape import Reshape
from tapestry_jax.lifting.rules.contractions import product_of
from tapestry_jax.lifting.rules.reductions import FOLDS, fold_of
from tapestry_jax.lifting.rules.reshapes import parts_of, reshape_of
from tapestry_jax.lifting.values import CellStep, Dims, LeafStep, LoopStep, Step, Steps, Values, needed, operands_of

Parts = tuple[tuple[int, ...], ...]
"""For every axis the sizes of the axes that it was merged of; of one that was not, its own."""


@dataclass(frozen=True)
class View:
    """A value as a reshape of another, whose axes are apart.

    Attributes:
      value: the other.
      parts: of each axis.
      origins: the places of the steps that merged them.
    """

    value: int
    parts: Parts
    origins: frozenset[int]


def unmerged(steps: Steps, values: Values) -> Steps:
    """The steps on axes apart, where all that reads what is merged takes them so: else it is merged as it was.

    Programs cell by cell, products that do not contract what was merged and folds of other axes do.
    """
    bodies = [replace(s, body=unmerged(s.body, values)) if isinstance(s, LoopStep) else s for s in steps.steps]
    merged, missed = {at for at, step in enumerate(bodies) if _is_reshape(step)}, frozenset[int]()
    while merged - missed:
        tried = _Apart(values, missed)
        found = tried.run(replace(steps, steps=bodies))
        if not tried.missed:
            return found
        missed |= tried.missed
    return replace(steps, steps=bodies)


class _Apart:
    """Goes through the steps once.

    Args:
      values: the types of all values.
      eager: the places of the steps that merge as they are written.

    Attributes:
      missed: those whose axes something needs as one.
    """

    def __init__(self, values: Values, eager: frozenset[int]) -> None:
        self._values, self._eager = values, eager
        self._views = dict[int, View]()
        self._same = dict[int, int]()
        self._made = dict[int, CellStep]()
        self._again = dict[tuple[int, Parts], int]()
        self._steps = list[Step]()
        self.missed = frozenset[int]()

    def run(self, steps: Steps) -> Steps:
        """The steps; of no use where one has missed."""
        for at, step in enumerate(steps.steps):
            if isinstance(step, CellStep):
                step = replace(step, operands=[(self._same.get(v, v), dims) for v, dims in step.operands])
            else:
                step = replace(step, operands=[self._same.get(v, v) for v in step.operands])
            written = self._step(at, step)
            self._steps += written
            self._made |= {s.results[0][0]: s for s in written if isinstance(s, CellStep) and len(s.results) == 1}
        for value in steps.outputs:
            self._whole(self._same.get(value, value))
        outputs = [self._same.get(value, value) for value in steps.outputs]
        return replace(steps, steps=needed(self._steps, outputs), outputs=outputs)

    def _step(self, at: int, step: Step) -> list[Step]:
        if isinstance(step, LeafStep) and _is_reshape(step):
            return self._reshape(at, step)
        if not any(value in self._views for value in operands_of(step)):
            return [step]
        made: Step | None = None
        if isinstance(step, CellStep):
            made = self._cells(step)
        elif isinstance(step, LeafStep) and is_product(step):
            made = self._product(step)
        elif isinstance(step, LeafStep) and _is_fold(step):
            made = self._fold(step)
        if made is None:
            for value in operands_of(step):
                self._whole(value)
        return [step if made is None else made]

    def _whole(self, value: int) -> None:
        """Say that a value is needed as it is: the first that merged it is to blame, others perhaps not."""
        if value in self._views:
            self.missed |= {min(self._views[value].origins)}

    def _parts(self, value: int) -> Parts:
        if value in self._views:
            return self._views[value].parts
        return tuple((size,) for size in self._values.shapes[value])

    def _value(self, value: int) -> int:
        return self._views[value].value if value in self._views else value

    def _result(self, value: int, parts: Parts, reads: Sequence[int]) -> int:
        """What is computed in the place of a value: itself, where none of its axes is merged."""
        if all(len(sizes) == 1 for sizes in parts):
            return value
        origins = frozenset[int]().union(*(self._views[v].origins for v in reads if v in self._views))
        made = self._values.new([*itertools.chain(*parts)], self._values.dtypes[value])
        self._views[value] = View(made, parts, origins)
        return made

    def _reshape(self, at: int, step: LeafStep) -> list[Step]:
        (operand,), (result,) = step.operands, step.results
        source, shapes = self._value(operand), self._values.shapes
        own, out = shapes[source], shapes[result]
        parts = parts_of(own, out)
        merges = parts is not None and any(len(sizes) > 1 for sizes in parts)
        if parts is None or (merges and at in self._eager):
            self._whole(operand)
            return [step]
        if not merges:
            if own == out:
                self._same[result] = source
                return []
            return [self._moved(step, source, result)]
        apart = tuple(itertools.chain(*parts))
        held = self._views[operand].origins if operand in self._views else frozenset[int]()
        target = source if own == apart else self._values.new(apart, self._values.dtypes[result])
        self._views[result] = View(target, parts, held | {at})
        return [] if target == source else [self._moved(step, source, target)]

    def _moved(self, step: LeafStep, source: int, target: int) -> Step:
        """A reshape that merges nothing; one that only adds or drops axes of size 1 is free."""
        own, out = self._values.shapes[source], self._values.shapes[target]
        if [size for size in own if size != 1] != [size for size in out if size != 1]:
            return replace(step, operation=reshape_of(own, out), operands=[source], results=[target])
        used = itertools.count()
        sizes = [size for size in out if size != 1]
        full: Dims = tuple(None if size == 1 else next(used) for size in out)
        used = itertools.count()
        read: Dims = tuple(None if size == 1 else next(used) for size in own)
        told = (step.place, step.scope)
        return CellStep("reshape", [(source, read)], [], Program((), (0,)), [(target, full)], sizes, *told)

    def _cells(self, step: CellStep) -> CellStep | None:
        found: dict[int, tuple[int, ...]] = {}
        for value, dims in step.operands:
            for dim, sizes in zip(dims, self._parts(value), strict=True):
                known = () if dim is None else found.setdefault(dim, sizes)
                if dim is not None and len(known) == 1:
                    found[dim] = sizes
                elif len(sizes) > 1 and known != sizes:
                    return None
        return self._on(step, found, lambda value, parts: self._result(value, parts, [v for v, _ in step.operands]))

    def _on(
        self, step: CellStep, apart: Mapping[int, tuple[int, ...]], result: Callable[[int, Parts], int]
    ) -> CellStep | None:
        """The program on dimensions that are apart; None where it asks for places in a merged one."""
        if any(len(apart.get(dim, ())) > 1 for dim in step.coordinates):
            return None
        at, sizes = dict[int, tuple[int, ...]](), list[int]()
        for dim, size in enumerate(step.sizes):
            own = apart.get(dim, (size,))
            at[dim] = tuple(range(len(sizes), len(sizes) + len(own)))
            sizes += own

        def spread(dims: Dims) -> Dims:
            return tuple(itertools.chain(*((None,) if dim is None else at[dim] for dim in dims)))

        def parts(dims: Dims) -> Parts:
            return tuple((1,) if dim is None else tuple(sizes[d] for d in at[dim]) for dim in dims)

        operands = [(self._as(value, parts(dims)), spread(dims)) for value, dims in step.operands]
        listed = [(value, dims) for value, dims in operands if value is not None]
        if len(listed) < len(operands):
            return None
        return replace(
            step,
            operands=listed,
            coordinates=[at[dim][0] for dim in step.coordinates],
            results=[(result(value, parts(dims)), spread(dims)) for value, dims in step.results],
            sizes=sizes,
        )

    def _as(self, value: int, parts: Parts) -> int | None:
        """A value with its axes apart; one that repeats its cells along them is written again, as masks are."""
        if self._parts(value) == parts:
            return self._value(value)
        made = self._made.get(value)
        if value in self._views or made is None:
            return None
        known = self._again.get((value, parts))
        if known is None:
            ((_, dims),) = made.results
            apart = {dim: sizes for dim, sizes in zip(dims, parts, strict=True) if dim is not None}
            known = self._values.new([*itertools.chain(*parts)], self._values.dtypes[value])
            again = self._on(made, apart, lambda *_: known)
            if again is None:
                return None
            self._steps.append(again)
            self._again[value, parts] = known
        return known

    def _product(self, step: LeafStep) -> LeafStep | None:
        kernel = step.operation.kernel
        assert isinstance(kernel, Products)
        params = dict(kernel.params)
        folded, batch = params["dimension_numbers"]
        parts = [self._parts(value) for value in step.operands]
        places = [_places(own) for own in parts]
        if any(len(parts[side][axis]) > 1 for side in (0, 1) for axis in folded[side]):
            return None
        if any(parts[0][i] != parts[1][j] for i, j in zip(*batch, strict=True)):
            return None
        out = [parts[0][axis] for axis in batch[0]]
        for side in (0, 1):
            taken = {*folded[side], *batch[side]}
            out += [sizes for axis, sizes in enumerate(parts[side]) if axis not in taken]
        params["dimension_numbers"] = tuple(
            tuple(tuple(itertools.chain(*(places[side][axis] for axis in numbers[side]))) for side in (0, 1))
            for numbers in (folded, batch)
        )
        operands = [self._value(value) for value in step.operands]
        result = self._result(step.results[0], tuple(out), step.operands)
        shapes = [self._values.shapes[value] for value in operands]
        operation = product_of(tuple(sorted(params.items())), shapes, self._values.shapes[result])
        return replace(step, operation=operation, operands=operands, results=[result])

    def _fold(self, step: LeafStep) -> LeafStep | None:
        (operand,), kernel = step.operands, step.operation.kernel
        assert isinstance(kernel, Bound)
        params, parts = dict(kernel.params), self._parts(operand)
        gone, places = {int(axis) for axis in params["axes"]}, _places(parts)
        if any(len(parts[axis]) > 1 for axis in gone):
            return None
        params["axes"] = tuple(places[axis][0] for axis in sorted(gone))
        kept = tuple(sizes for axis, sizes in enumerate(parts) if axis not in gone)
        result = self._result(step.results[0], kept, [operand])
        source, told = self._value(operand), tuple(sorted(params.items()))
        shapes, is_truth = self._values.shapes, self._values.dtypes[operand] == np.bool_
        operation = fold_of(kernel.primitive, told, shapes[source], shapes[result], is_truth)
        return replace(step, operation=operation, operands=[source], results=[result])


def _is_reshape(step: Step) -> bool:
    return isinstance(step, LeafStep) and isinstance(step.operation.kernel, Reshape)


def _is_fold(step: LeafStep) -> bool:
    return isinstance(step.operation.kernel, Bound) and step.operation.kernel.primitive in FOLDS


def _places(parts: Parts) -> list[tuple[int, ...]]:
    """For every axis the places of those that it was merged of."""
    ends = list(itertools.accumulate((len(sizes) for sizes in parts), initial=0))
    return [tuple(range(low, high)) for low, high in itertools.pairwise(ends)]
