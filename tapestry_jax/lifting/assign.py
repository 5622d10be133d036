"""Which dimension every axis of every value is, step by step; where two must stay two, an operand is renamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from combinators.index_space.axis import Axis
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.operations.operation import Operation
from tapestry_jax.lifting.dims import Dim, another, tell_apart, unite
from tapestry_jax.lifting.finding.fuse import operation_of
from tapestry_jax.lifting.values import CellStep, LoopStep, Steps, Values

Named = tuple[Dim | None, ...]
"""For every axis its dimension; None for one of size 1."""


@dataclass(eq=False)
class Applied:
    """A step whose dimensions are known.

    Attributes:
      operation: with local names.
      operands: values, with the dimensions that their axes have for this operation.
      results: values.
      own: dimensions that no operand names, by local name.
      scope: under which its path lies.
    """

    operation: Operation
    operands: list[tuple[int, Named]]
    results: list[int]
    own: dict[str, Dim]
    scope: str


@dataclass(eq=False)
class Repeated:
    """A loop whose dimensions are known."""

    body: Assigned
    operands: list[tuple[int, Named]]
    carries: int
    stacked: int
    length: int
    results: list[int]
    over: Dim | None
    name: str
    outputs: list[Named]
    scope: str
    until: bool = False


@dataclass(eq=False)
class Assigned:
    """Steps whose dimensions are known.

    Attributes:
      inputs: values.
      steps: in order.
      outputs: values.
    """

    inputs: list[int]
    outputs: list[int]
    steps: list[Applied | Repeated] = field(default_factory=list["Applied | Repeated"])


class Assigner:
    """Goes through steps once.

    Args:
      values: the types of all values.

    Attributes:
      named: for each value the dimensions of its axes.
      dims: all that were made, in order.
    """

    def __init__(self, values: Values) -> None:
        self.values = values
        self.named: dict[int, Named] = {}
        self.dims: list[Dim] = []

    def new(self, key: tuple[object, ...], hint: str, name: str | None = None) -> Dim:
        """A new dimension."""
        self.dims.append(Dim(key, hint, name))
        return self.dims[-1]

    def give(self, value: int, named: Named) -> None:
        """Say what the axes of a value are."""
        tell_apart(named)
        self.named[value] = named

    def run(self, steps: Steps) -> Assigned:
        """Go through steps whose inputs have dimensions."""
        found = Assigned(steps.inputs, steps.outputs)
        for step in steps.steps:
            if isinstance(step, LoopStep):
                found.steps.append(self._loop(step))
                continue
            if isinstance(step, CellStep):
                operation, operands = operation_of(step), [value for value, _ in step.operands]
                results = [value for value, _ in step.results]
            else:
                operation, operands, results = step.operation, step.operands, step.results
            found.steps.append(self._apply(operation, operands, results, step.scope))
        return found

    def _apply(self, operation: Operation, operands: Sequence[int], results: Sequence[int], scope: str) -> Applied:
        told = operation.signature
        arrays = [operand for operand in told.operands if operand.coordinate is None]
        carried = {axis.whole_name for result in told.results for axis in result.axes}
        seen = _Occurrences(told, arrays, carried)
        bound: dict[str, Dim] = {}
        own: dict[str, Dim] = {}
        met = {
            dim: [d for n, a in seen.places(dim) if (d := self._named(operands[n], a, operation)) is not None]
            for dim in told.dims
        }
        # Those that have no choice choose first, so that as few operands as possible are renamed.
        for dim in sorted(told.dims, key=lambda dim: len({d.find() for d in met[dim]}) or len(told.dims) + 1):
            candidates = met[dim]
            if candidates:
                bound[dim] = self._choose(candidates, list(bound.values()))
            elif told.role(dim) != "whole" or dim in carried:
                bound[dim] = own[dim] = self.new((operation.name, dim, *self._origin(operands)), operation.name)
            else:
                continue
            tell_apart(bound.values())
            for other in candidates if told.role(dim) != "whole" else ():
                unite(bound[dim], other)
        targets = [self._target(operands[n], n, seen, bound) for n in range(len(operands))]
        shapes = told.results if len(told.results) == len(results) else told.results * len(results)
        for value, result in zip(results, shapes, strict=True):
            self.give(value, tuple(self._of_result(operation, at, axis, bound) for at, axis in enumerate(result.axes)))
        return Applied(operation, list(zip(operands, targets, strict=True)), list(results), own, scope)

    def _choose(self, candidates: Sequence[Dim], taken: Sequence[Dim]) -> Dim:
        """The first candidate that is not another dimension of the operation; else one that stands for it."""
        used = {dim.find() for dim in taken}
        free = [dim for dim in candidates if dim.find() not in used]
        if free:
            return next((dim for dim in free if dim.find().name is not None), free[0])
        made = another(candidates[0], taken)
        if made not in self.dims:
            self.dims.append(made)
        return made

    def _named(self, value: int, axis: int, operation: Operation) -> Dim | None:
        named = self.named[value]
        if named[axis] is None:
            made = self.new(("unit", operation.name, axis), "unit")
            self.give(value, (*named[:axis], made, *named[axis + 1 :]))
        return self.named[value][axis]

    def _origin(self, operands: Sequence[int]) -> tuple[object, ...]:
        """What tells new dimensions apart: those of operations on equal dimensions may share a name."""
        return tuple(dim.find().key for value in operands for dim in self.named[value] if dim is not None)

    def _target(self, value: int, number: int, seen: _Occurrences, bound: dict[str, Dim]) -> Named:
        """The dimensions that the axes of an operand need to have."""
        named, dims = self.named[value], seen.axes(number)
        wanted = [None if dim is None else bound.get(dim) for dim in dims]
        found: list[Dim | None] = []
        for own, want in zip(named, wanted, strict=True):
            if own is None or want is not None:
                found.append(None if own is None else want)
                continue
            taken = [dim for dim in (*wanted, *found) if dim is not None]
            if any(dim.find() is own.find() for dim in taken):
                found.append(self._choose([own], taken))
            else:
                found.append(own)
        tell_apart(found)
        return tuple(found)

    def _of_result(self, operation: Operation, at: int, axis: Axis, bound: dict[str, Dim]) -> Dim | None:
        name = axis.name or axis.whole_name
        if axis.kind == "one":
            return None
        if name is not None:
            return bound[name]
        return self.new((operation.name, at, *(dim.find().key for dim in bound.values())), operation.name)

    def _loop(self, step: LoopStep) -> Repeated:
        stacked = step.operands[step.carries : step.carries + step.stacked]
        over = self._over(step, stacked)
        operands: list[tuple[int, Named]] = []
        for number, (value, inner) in enumerate(zip(step.operands, step.body.inputs, strict=True)):
            named = self.named[value]
            if step.carries <= number < step.carries + step.stacked:
                named = (over, *self._without(named[1:], over))
                self.give(inner, named[1:])
            else:
                named = self._without(named, over)
                self.give(inner, named)
            operands.append((value, named))
        body = self.run(step.body)
        outputs: list[Named] = []
        for number, value in enumerate(step.body.outputs):
            named = self.named[value]
            if number < step.carries:
                wanted = self.named[step.body.inputs[number]]
                outputs.append(self._carried(named, wanted))
                self.give(step.results[number], outputs[-1])
            else:
                outputs.append(self._without(named, over))
                self.give(step.results[number], (over, *outputs[-1]))
        told = (step.carries, step.stacked, step.length, step.results, over, step.name, outputs, step.scope, step.until)
        return Repeated(body, operands, *told)

    def _over(self, step: LoopStep, stacked: Sequence[int]) -> Dim | None:
        if len(step.results) == step.carries and not stacked:
            return None
        over: Dim | None = None
        for value in stacked:
            first = self.named[value][0] or self.new((step.name, "over", value), step.name)
            if over is None:
                over = first
            else:
                unite(over, first)
        return over if over is not None else self.new((step.name, "over", step.results[-1]), step.name)

    def _without(self, named: Named, over: Dim | None) -> Named:
        """The dimensions of a tensor beside that of the loop: where it has that itself, another stands for it."""
        if over is None:
            return named
        found: list[Dim | None] = []
        for dim in named:
            taken = [over, *(d for d in (*named, *found) if d is not None and d is not dim)]
            found.append(self._choose([dim], taken) if dim is not None and dim.find() is over.find() else dim)
        tell_apart((over, *found))
        return tuple(found)

    def _carried(self, named: Named, wanted: Named) -> Named:
        """What a carry comes out as: what it went in as."""
        for own, want in zip(named, wanted, strict=True):
            if own is not None and want is not None:
                unite(want, own)
        return tuple(want if want is not None else own for own, want in zip(named, wanted, strict=True))


class _Occurrences:
    """Where the dimensions of a signature stand: the axes of operands that hand their names to each."""

    def __init__(self, told: Signature, arrays: Sequence[Operand], carried: set[str | None]) -> None:
        self._axes = [tuple(_handed_on(axis, told, carried) for axis in operand.axes) for operand in arrays]
        first: set[str] = set()
        # A whole dimension of a result takes the name of the first axis that is it; the others keep theirs.
        for number, listed in enumerate(self._axes):
            kept: list[str | None] = []
            for dim in listed:
                again = dim is not None and told.role(dim) == "whole" and dim in first
                kept.append(None if again else dim)
                first |= {dim} if dim is not None else set()
            self._axes[number] = tuple(kept)

    def places(self, dim: str) -> list[tuple[int, int]]:
        """Operand and axis."""
        return [(n, a) for n, listed in enumerate(self._axes) for a, name in enumerate(listed) if name == dim]

    def axes(self, number: int) -> tuple[str | None, ...]:
        """The dimension of every axis of an operand."""
        return self._axes[number]


def _handed_on(axis: Axis, told: Signature, carried: set[str | None]) -> str | None:
    """The dimension that takes the name of the tensor's axis, as where operations are recorded."""
    if axis.name is not None:
        return axis.name
    if axis.whole_name is not None:
        return axis.whole_name if axis.whole_name in carried else None
    if axis.is_window:
        found = [term.name for term in axis.terms if told.role(term.name) in ("map", "generated")]
        return found[0] if len(found) == 1 else None
    return None
